// SPDX-License-Identifier: Apache-2.0

// Reads a JSON list of objects from standard input, and prints the status that kstatus computes of each, one a line: InProgress,
// Failed, Current or Terminating. The library is the one that Helm is built with.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := compute(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func compute() error {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	for _, object := range objects {
		decoded := &unstructured.Unstructured{}
		if err := decoded.UnmarshalJSON(object); err != nil {
			return err
		}
		result, err := status.Compute(decoded)
		if err != nil {
			return err
		}
		fmt.Println(result.Status)
	}
	return nil
}
