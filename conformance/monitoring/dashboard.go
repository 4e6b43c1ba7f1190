// Reads a dashboard with the types that Grafana's schema generates, and says what does not fit.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		var read dashboard.Dashboard
		if err = read.UnmarshalJSONStrict(data); isNone(err) {
			err = read.Validate()
		}
	}
	if !isNone(err) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The library sometimes returns a list of no errors.
func isNone(err error) bool {
	var all cog.BuildErrors
	return err == nil || errors.As(err, &all) && len(all) == 0
}
