package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Redis: a command is a line, and so is the first line of its answer.
func lineClient(use, address string) (client, error) {
	var conn net.Conn
	var answers *bufio.Reader
	ask := func(command string) error {
		_, err := fmt.Fprintf(conn, "%s\r\n", command)
		return err
	}
	begin := func(command string, wait time.Duration) func() error {
		return func() (err error) {
			if conn, err = net.Dial("tcp", address); err != nil {
				return err
			}
			answers = bufio.NewReader(conn)
			if err = ask("PING"); err == nil {
				_, err = answers.ReadString('\n')
			}
			time.Sleep(wait)
			if err == nil && command != "" {
				err = ask(command)
			}
			return err
		}
	}
	// All that comes until the end.
	end := func() error {
		_, err := io.Copy(io.Discard, answers)
		return err
	}
	lose := func() error {
		_ = end()
		return io.ErrUnexpectedEOF
	}
	switch use {
	case "idle":
		return client{begin: begin("", pause), rest: end}, nil
	case "next":
		return client{begin: begin("BLPOP nothing 0", pause), rest: lose}, nil
	case "at-once":
		return client{begin: begin("BLPOP nothing 0", 0), rest: lose}, nil
	case "stream":
		return client{begin: begin("SUBSCRIBE nothing", pause), rest: lose}, nil
	}
	return client{}, fmt.Errorf("no use of redis named %q", use)
}

// PostgreSQL's protocol, version 3.0, without a password.
func postgresClient(use, address string) (client, error) {
	var conn net.Conn
	var answers *bufio.Reader
	// The type of the next message.
	next := func() (byte, error) {
		head := make([]byte, 5)
		if _, err := io.ReadFull(answers, head); err != nil {
			return 0, err
		}
		_, err := io.CopyN(io.Discard, answers, int64(binary.BigEndian.Uint32(head[1:]))-4)
		return head[0], err
	}
	// `Z`: ready for a query; `E`: an error.
	answer := func() (byte, error) {
		for {
			got, err := next()
			if err != nil || got == 'Z' || got == 'E' {
				return got, err
			}
		}
	}
	query := func(text string) error {
		message := append([]byte{'Q'}, binary.BigEndian.AppendUint32(nil, uint32(len(text)+5))...)
		_, err := conn.Write(append(append(message, text...), 0))
		return err
	}
	connect := func() (err error) {
		if conn, err = net.Dial("tcp", address); err != nil {
			return err
		}
		answers = bufio.NewReader(conn)
		settings := "user\x00postgres\x00\x00"
		start := binary.BigEndian.AppendUint32(nil, uint32(len(settings)+8))
		start = append(binary.BigEndian.AppendUint32(start, 3<<16), settings...)
		if _, err = conn.Write(start); err != nil {
			return err
		}
		got, err := answer()
		if err == nil && got == 'E' {
			err = errors.New("the server does not take the session")
		}
		return err
	}
	begin := func(text string, wait time.Duration) func() error {
		return func() (err error) {
			// It listens before it has started.
			for range 100 {
				if err = connect(); err == nil {
					break
				}
				if conn != nil {
					_ = conn.Close()
				}
				time.Sleep(pause)
			}
			time.Sleep(wait)
			if err == nil && text != "" {
				err = query(text)
			}
			return err
		}
	}
	// An error is an answer, as status 503 is.
	answered := func() error { _, err := answer(); return err }
	switch use {
	case "idle":
		return client{begin: begin("", pause), rest: func() error { _, _ = io.Copy(io.Discard, answers); return nil }}, nil
	case "next":
		return client{begin: begin("select pg_sleep(30)", pause), rest: answered}, nil
	case "at-once":
		return client{begin: begin("select pg_sleep(30)", 0), rest: answered}, nil
	}
	return client{}, fmt.Errorf("no use of postgres named %q", use)
}
