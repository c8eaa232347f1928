// Program overlay writes the overlay of a build whose clock can be moved into a
// folder, for the Makefile.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/settleonce/settleonce/internal/clockjump"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: overlay FOLDER")
		os.Exit(2)
	}
	if _, err := clockjump.BuildFlags(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
