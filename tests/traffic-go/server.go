package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// How long a slow answer takes.
const slow = 3 * time.Second

// What ends a server: `exit` at once, `close` closes its connections first, `graceful` finishes its requests.
type ending interface {
	close() error
	graceful() error
}

func serve(protocol, way, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var server ending
	if protocol == "grpc" {
		server = serveGrpc(listener)
	} else {
		server, err = serveHttp(protocol, listener)
		if err != nil {
			return err
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Println("ready", listener.Addr())
	<-stop
	switch way {
	case "exit":
		os.Exit(0)
	case "close":
		return server.close()
	case "graceful":
		return server.graceful()
	}
	return fmt.Errorf("no way to end named %q", way)
}

type httpServer struct{ *http.Server }

func (s httpServer) close() error    { return s.Close() }
func (s httpServer) graceful() error { return s.Shutdown(context.Background()) }

func serveHttp(protocol string, listener net.Listener) (ending, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/fast", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(slow)
		fmt.Fprintln(w, "ok")
	})
	// A message, then the next one late.
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(slow)
		fmt.Fprintln(w, "last")
	})
	// The client's HTTP/2 acknowledges so much with a window update: its bytes are the last.
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	mux.HandleFunc("/download", func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for range 64 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	mux.Handle("/websocket", websocket.Handler(func(conn *websocket.Conn) {
		var message string
		for websocket.Message.Receive(conn, &message) == nil {
			if message == "slow" {
				time.Sleep(slow)
			}
			_ = websocket.Message.Send(conn, message)
		}
	}))
	server := &http.Server{Handler: mux, Protocols: protocols(protocol)}
	switch protocol {
	case "http", "h2c":
	case "https12", "https13", "h2":
		config, err := tlsConfig()
		if err != nil {
			return nil, err
		}
		config.MinVersion, config.MaxVersion = versions(protocol)
		config.NextProtos = alpn(protocol)
		server.TLSConfig = config
		go func() { _ = server.ServeTLS(listener, "", "") }()
		return httpServer{server}, nil
	default:
		return nil, fmt.Errorf("no protocol named %q", protocol)
	}
	go func() { _ = server.Serve(listener) }()
	return httpServer{server}, nil
}

func protocols(protocol string) *http.Protocols {
	is := new(http.Protocols)
	is.SetHTTP1(protocol == "http" || protocol == "https12" || protocol == "https13")
	is.SetHTTP2(protocol == "h2")
	is.SetUnencryptedHTTP2(protocol == "h2c")
	return is
}

func alpn(protocol string) []string {
	if protocol == "h2" {
		return []string{"h2"}
	}
	return []string{"http/1.1"}
}

func versions(protocol string) (uint16, uint16) {
	if protocol == "https12" {
		return tls.VersionTLS12, tls.VersionTLS12
	}
	return tls.VersionTLS13, tls.VersionTLS13
}

func tlsConfig() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}, nil
}

type grpcServer struct{ *grpc.Server }

func (s grpcServer) close() error    { s.Stop(); return nil }
func (s grpcServer) graceful() error { s.GracefulStop(); return nil }

func serveGrpc(listener net.Listener) ending {
	server := grpc.NewServer()
	health.RegisterHealthServer(server, healthServer{})
	go func() { _ = server.Serve(listener) }()
	return grpcServer{server}
}

// Answers service "slow" late.
type healthServer struct {
	health.UnimplementedHealthServer
}

var serving = &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}

func (healthServer) Check(_ context.Context, request *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if request.Service == "slow" {
		time.Sleep(slow)
	}
	return serving, nil
}

func (healthServer) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	if err := stream.Send(serving); err != nil {
		return err
	}
	time.Sleep(slow)
	return stream.Send(serving)
}
