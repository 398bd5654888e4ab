// SPDX-License-Identifier: Apache-2.0

// Talks to a registration socket as the kubelet's plugin manager does: same gRPC version, same way to dial, and so the same
// `:authority`, the percent-encoded path of the socket.
//
// usage: registration SOCKET
//
// Asks GetInfo, tells that the registration succeeded, and prints what GetInfo answered as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// The kubelet's own limit for each of the two steps.
const timeout = 10 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: registration SOCKET")
		os.Exit(2)
	}
	if err := register(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "registration:", err)
		os.Exit(1)
	}
}

func register(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// Deprecated, but what the kubelet does; grpc.NewClient would send another authority.
	connection, err := grpc.DialContext(ctx, socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}))
	if err != nil {
		return fmt.Errorf("dialing %s: %w", socket, err)
	}
	defer connection.Close()

	client := registration.NewRegistrationClient(connection)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return fmt.Errorf("GetInfo: %w", err)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		return fmt.Errorf("NotifyRegistrationStatus: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"type":               info.Type,
		"name":               info.Name,
		"endpoint":           info.Endpoint,
		"supported_versions": info.SupportedVersions,
	})
}
