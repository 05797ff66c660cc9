package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// More than a tick of any kernel: a request after it is known to come after the answer before.
const pause = 50 * time.Millisecond

// A request in hand has reached the server by then.
const arrives = 100 * time.Millisecond

// What a client does on its connection before the end, and the rest of it: an error is a loss.
type client struct {
	// Puts the connection to its use.
	begin func() error
	// Until the server has closed the connection.
	rest func() error
}

func call(protocol, use, address string, count int) error {
	clients := make([]client, count)
	for i := range clients {
		made, err := newClient(protocol, use, address)
		if err != nil {
			return err
		}
		clients[i] = made
	}
	errs := make([]error, count)
	var begun, done sync.WaitGroup
	for i, of := range clients {
		begun.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			err := of.begin()
			begun.Done()
			if err == nil {
				err = of.rest()
			} else {
				fmt.Fprintln(os.Stderr, "traffic: before the end:", err)
				os.Exit(1)
			}
			errs[i] = err
		}()
	}
	begun.Wait()
	time.Sleep(arrives)
	fmt.Println("in place")
	done.Wait()
	lost := 0
	var reasons []string
	for _, err := range errs {
		if err != nil {
			lost++
			reasons = append(reasons, err.Error())
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"lost": lost, "reasons": reasons})
}

func newClient(protocol, use, address string) (client, error) {
	switch {
	case protocol == "grpc":
		return grpcClient(use, address)
	case protocol == "redis":
		return lineClient(use, address)
	case protocol == "postgres":
		return postgresClient(use, address)
	case use == "websocket" || use == "websocket-slow":
		return websocketClient(use, address)
	}
	return httpClient(protocol, use, address)
}

func httpClient(protocol, use, address string) (client, error) {
	closed := make(chan struct{}, 1)
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, to)
		return noticed{conn, closed}, err
	}
	low, high := versions(protocol)
	transport := &http.Transport{
		DialContext:       dial,
		Protocols:         protocols(protocol),
		ForceAttemptHTTP2: protocol == "h2",
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, NextProtos: alpn(protocol), MinVersion: low, MaxVersion: high,
		},
	}
	to := &http.Client{Transport: transport}
	scheme := "http"
	if strings.HasPrefix(protocol, "https") || protocol == "h2" {
		scheme = "https"
	}
	// Not a GET: the transport would repeat it on another connection.
	post := func(path string) (*http.Response, error) {
		return to.Post(scheme+"://"+address+path, "text/plain", strings.NewReader("please"))
	}
	whole := func(path string) error {
		answer, err := post(path)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	var answer *http.Response
	begun := func(path string) func() error {
		return func() (err error) {
			answer, err = post(path)
			if err == nil {
				_, err = bufio.NewReader(answer.Body).ReadByte()
			}
			return err
		}
	}
	finished := func() error {
		_, err := io.Copy(io.Discard, answer.Body)
		return err
	}
	asked := func(path string) client {
		result := make(chan error, 1)
		return client{
			begin: func() error { go func() { result <- whole(path) }(); return nil },
			rest:  func() error { return <-result },
		}
	}
	idle := func(path string) client {
		return client{begin: func() error { return whole(path) }, rest: func() error { <-closed; return nil }}
	}
	switch use {
	case "idle":
		return idle("/fast"), nil
	case "idle-large":
		return idle("/large"), nil
	case "first":
		return asked("/slow"), nil
	case "next", "at-once":
		next := asked("/slow")
		return client{
			begin: func() error {
				err := whole("/fast")
				if use == "next" {
					time.Sleep(pause)
				}
				return errors.Join(err, next.begin())
			},
			rest: next.rest,
		}, nil
	case "stream":
		return client{begin: begun("/stream"), rest: finished}, nil
	case "download":
		// Reads no more until the server has ended.
		return client{begin: begun("/download"), rest: func() error {
			time.Sleep(2 * slow)
			return finished()
		}}, nil
	}
	return client{}, fmt.Errorf("no use of %s named %q", protocol, use)
}

// Notices the end of the connection.
type noticed struct {
	net.Conn
	closed chan struct{}
}

func (c noticed) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.notice()
	}
	return n, err
}

// With TLS the client closes the connection when it has read close_notify.
func (c noticed) Close() error {
	c.notice()
	return c.Conn.Close()
}

func (c noticed) notice() {
	select {
	case c.closed <- struct{}{}:
	default:
	}
}

func websocketClient(use, address string) (client, error) {
	var conn *websocket.Conn
	exchange := func(message string) (err error) {
		if err = websocket.Message.Send(conn, message); err == nil {
			var answer string
			err = websocket.Message.Receive(conn, &answer)
		}
		return err
	}
	connect := func() (err error) {
		if conn, err = websocket.Dial("ws://"+address+"/websocket", "", "http://"+address); err == nil {
			err = exchange("fast")
		}
		time.Sleep(pause)
		return err
	}
	if use == "websocket" {
		// Waits for a message: an end without a closing handshake loses the session.
		return client{begin: connect, rest: func() error {
			var answer string
			return websocket.Message.Receive(conn, &answer)
		}}, nil
	}
	result := make(chan error, 1)
	return client{
		begin: func() error {
			err := connect()
			go func() { result <- exchange("slow") }()
			return err
		},
		rest: func() error { return <-result },
	}, nil
}

func grpcClient(use, address string) (client, error) {
	closed := make(chan struct{}, 1)
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			return noticed{conn, closed}, err
		}))
	if err != nil {
		return client{}, err
	}
	to := health.NewHealthClient(conn)
	check := func(service string) error {
		_, err := to.Check(context.Background(), &health.HealthCheckRequest{Service: service})
		return err
	}
	result := make(chan error, 1)
	switch use {
	case "idle":
		return client{begin: func() error { return check("fast") }, rest: func() error { <-closed; return nil }}, nil
	case "first":
		return client{begin: func() error { go func() { result <- check("slow") }(); return nil }, rest: func() error { return <-result }}, nil
	case "next":
		return client{
			begin: func() error {
				err := check("fast")
				time.Sleep(pause)
				go func() { result <- check("slow") }()
				return err
			},
			rest: func() error { return <-result },
		}, nil
	case "stream":
		var stream grpc.ServerStreamingClient[health.HealthCheckResponse]
		return client{
			begin: func() (err error) {
				if stream, err = to.Watch(context.Background(), &health.HealthCheckRequest{}); err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			rest: func() error {
				for {
					if _, err := stream.Recv(); err == io.EOF {
						return nil
					} else if err != nil {
						return err
					}
				}
			},
		}, nil
	}
	return client{}, fmt.Errorf("no use of grpc named %q", use)
}
