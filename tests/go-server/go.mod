module epitaph/go-server

go 1.24.0

toolchain go1.26.8
