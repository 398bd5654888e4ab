// SPDX-License-Identifier: Apache-2.0

// Prints the descriptors of the published CSI and plugin registration modules on standard output, as a binary
// google.protobuf.FileDescriptorSet, so that a test can compare ours with them.
package main

import (
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	set := &descriptorpb.FileDescriptorSet{}
	for _, message := range []protoreflect.ProtoMessage{&csi.CreateVolumeRequest{}, &registration.PluginInfo{}} {
		file := message.ProtoReflect().Descriptor().ParentFile()
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err == nil {
		_, err = os.Stdout.Write(encoded)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "descriptors:", err)
		os.Exit(1)
	}
}
