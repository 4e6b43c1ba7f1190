// Takes spans over HTTP with the types of OpenTelemetry's own collector, and prints a line for each.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

func main() {
	http.HandleFunc("/v1/traces", func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		taken := ptraceotlp.NewExportRequest()
		if err == nil {
			err = taken.UnmarshalJSON(body)
		}
		if err != nil {
			fmt.Println("wrong:", err)
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		resources := taken.Traces().ResourceSpans()
		for i := 0; i < resources.Len(); i++ {
			name, _ := resources.At(i).Resource().Attributes().Get("service.name")
			scopes := resources.At(i).ScopeSpans()
			for j := 0; j < scopes.Len(); j++ {
				for k := 0; k < scopes.At(j).Spans().Len(); k++ {
					span := scopes.At(j).Spans().At(k)
					length := span.EndTimestamp().AsTime().Sub(span.StartTimestamp().AsTime())
					fmt.Println("span", name.Str(), span.TraceID(), span.Kind(), span.Attributes().Len(), length >= 0, span.Name())
				}
			}
		}
		answer.Header().Set("Content-Type", "application/json")
		fmt.Fprint(answer, "{}")
	})
	if err := http.ListenAndServe(os.Args[1], nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
