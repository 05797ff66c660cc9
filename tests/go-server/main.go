// Command go-server answers HTTP and handles no signal: as PID 1 it ends at SIGTERM with exit code 2, because Go's runtime
// catches what the kernel would ignore.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	address := ":8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	log.Fatal(http.ListenAndServe(address, nil))
}
