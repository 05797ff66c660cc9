module epitaph/traffic

go 1.24.0

toolchain go1.26.8

require (
	golang.org/x/net v0.44.0
	google.golang.org/grpc v1.75.1
)

require (
	golang.org/x/sys v0.36.0 // indirect
	golang.org/x/text v0.29.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250707201910-8d1bb00bc6a7 // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)
