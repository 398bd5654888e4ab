// SPDX-License-Identifier: Apache-2.0

// What the Go driver makes of its configuration.
//
// Reads one JSON object per line from standard input and writes one per line:
//
//	{"file": PATH, "cloud": NAME}                 the section [Global "NAME"] of a cloud.conf
//	{"clouds_yaml": PATH, "cloud": NAME}          an entry of a clouds.yaml, as gophercloud reads it
//	{"flag": "cloud-name", "values": [TEXT...]}   a flag of the driver, as pflag reads it
//
// The answer is the configuration, or {"error": REASON}. The login is the body of the request for a token, which is never sent.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/utils/v2/openstack/clientconfig"
	"github.com/spf13/pflag"
	"k8s.io/cloud-provider-openstack/pkg/client"
	"k8s.io/cloud-provider-openstack/pkg/csi/cinder/openstack"
)

type query struct {
	File       string   `json:"file"`
	CloudsYAML string   `json:"clouds_yaml"`
	Cloud      string   `json:"cloud"`
	Flag       string   `json:"flag"`
	Values     []string `json:"values"`
}

// The highest limit of the driver, and the one without a limit in the file: GetMaxVolLimit.
const maxLimit = 256

func limit(configured int64) int64 {
	if configured > 0 && configured <= maxLimit {
		return configured
	}
	return maxLimit
}

// The body of the request for a token.
func body(options gophercloud.AuthOptions) (map[string]any, error) {
	scope, err := options.ToTokenV3ScopeMap()
	if err != nil {
		return nil, err
	}
	request, err := options.ToTokenV3CreateMap(scope)
	if err != nil {
		return nil, err
	}
	auth, _ := request["auth"].(map[string]any)
	return auth, nil
}

// What NewOpenStackClient logs in with.
func login(global *client.AuthOpts) (map[string]any, error) {
	if global.TrustID == "" {
		return body(global.ToAuthOptions())
	}
	options := global.ToAuth3Options()
	if global.TrusteeID != "" {
		options.UserID = global.TrusteeID
	}
	if global.TrusteePassword != "" {
		options.Password = global.TrusteePassword
	}
	options.Scope.TrustID = global.TrustID
	return body(options)
}

func readConf(file, cloud string) (any, error) {
	config, err := openstack.GetConfigFromFiles([]string{file})
	if err != nil {
		return nil, err
	}
	global := config.Global[cloud]
	if global == nil {
		return nil, fmt.Errorf("there is no section [Global %q]", cloud)
	}
	switch global.EndpointType {
	case "", gophercloud.AvailabilityAdmin, gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal:
	default:
		return nil, fmt.Errorf("gophercloud refuses the availability %q", global.EndpointType)
	}
	auth, err := login(global)
	if err != nil {
		return nil, err
	}
	if global.AuthURL == "" {
		return nil, errors.New("there is no address of Keystone")
	}
	options := config.BlockStorage
	return map[string]any{
		"auth_url":  global.AuthURL,
		"auth":      auth,
		"region":    global.Region,
		"interface": string(global.EndpointType),
		"insecure":  global.TLSInsecure == "true",
		"ca_file":   global.CAFile,
		"ca_pem":    global.CAFileContents,
		"cert":      global.CertFile,
		"key":       global.KeyFile,
		"options": map[string]any{
			"limit":               limit(options.NodeVolumeAttachLimit),
			"rescan":              options.RescanOnResize,
			"ignore_zone":         options.IgnoreVolumeAZ,
			"ignore_microversion": options.IgnoreVolumeMicroversion,
			"timeout_ms":          config.Metadata.RequestTimeout.Milliseconds(),
			"search_order":        config.Metadata.SearchOrder,
		},
	}, nil
}

func readYAML(file, cloud string) (any, error) {
	os.Setenv("OS_CLIENT_CONFIG_FILE", file)
	options, err := clientconfig.AuthOptions(&clientconfig.ClientOpts{Cloud: cloud, EnvPrefix: "_"})
	if err != nil {
		return nil, err
	}
	auth, err := body(*options)
	if err != nil {
		return nil, err
	}
	return map[string]any{"auth_url": options.IdentityEndpoint, "auth": auth}, nil
}

func readFlag(name string, values []string) (any, error) {
	flags := pflag.NewFlagSet("driver", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	slice := flags.StringSlice("slice", nil, "")
	pairs := flags.StringToString("map", nil, "")
	kind := "slice"
	if name == "additional-topology" {
		kind = "map"
	}
	for _, value := range values {
		if err := flags.Set(kind, value); err != nil {
			return nil, err
		}
	}
	if kind == "map" {
		return *pairs, nil
	}
	return *slice, nil
}

func answer(line []byte) any {
	var asked query
	err := json.Unmarshal(line, &asked)
	var found any
	if err == nil {
		switch {
		case asked.Flag != "":
			found, err = readFlag(asked.Flag, asked.Values)
		case asked.CloudsYAML != "":
			found, err = readYAML(asked.CloudsYAML, asked.Cloud)
		default:
			found, err = readConf(asked.File, asked.Cloud)
		}
	}
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return found
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := output.Encode(answer(line)); err != nil {
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}
