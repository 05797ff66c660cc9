// Command traffic is a server and its clients, for one protocol each: what the clients lose when the server ends is compared with
// what epitaph counts.
//
//	traffic serve PROTOCOL WAY ADDRESS       until SIGTERM, then as WAY says
//	traffic call PROTOCOL USE ADDRESS COUNT  COUNT clients, each with a connection of its own
//
// A server prints `ready ADDRESS`. A client prints `in place` when all of its connections are in use as USE says, and, when the server
// has closed them all, one line of JSON: how many connections lost a request, an answer or a stream.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "serve":
		return serve(args[1], args[2], args[3])
	case len(args) == 5 && args[0] == "call":
		count, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		return call(args[1], args[2], args[3], count)
	}
	return fmt.Errorf("usage: traffic serve PROTOCOL WAY ADDRESS | call PROTOCOL USE ADDRESS COUNT")
}
