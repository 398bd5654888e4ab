// SPDX-License-Identifier: Apache-2.0

// Compares two messages of Go that say the same, before and after one of them is part of a request that is sent: by what they
// say (proto.Equal), and with everything that is inside them (reflect.DeepEqual, which is what gomega's Equal calls). Then compares
// their segments alone, and those of another zone.
//
// The messages are those of csi-sanity's spec on snapshots with accessibility requirements: the zone that a node tells in
// NodeGetInfo, and the zone that the answer of CreateSnapshot tells.
//
// Prints what it finds on standard output. Fails if reflect.DeepEqual is as good as proto.Equal, for then there is nothing to show,
// and if the segments do not decide.
package main

import (
	"fmt"
	"os"
	"reflect"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

var zone, elsewhere = topology("nova"), topology("elsewhere")

func main() {
	if err := compare(); err != nil {
		fmt.Fprintln(os.Stderr, "equality:", err)
		os.Exit(1)
	}
}

func compare() error {
	node, answer := &csi.NodeGetInfoResponse{}, &csi.CreateSnapshotResponse{}
	if err := receive(&csi.NodeGetInfoResponse{AccessibleTopology: zone}, node); err != nil {
		return err
	}
	snapshot := &csi.Snapshot{AccessibleTopology: []*csi.Topology{zone}}
	if err := receive(&csi.CreateSnapshotResponse{Snapshot: snapshot}, answer); err != nil {
		return err
	}
	ofNode, ofSnapshot := node.GetAccessibleTopology(), answer.GetSnapshot().GetAccessibleTopology()[0]

	show("both received", ofNode, ofSnapshot)
	if !reflect.DeepEqual(ofNode, ofSnapshot) {
		return fmt.Errorf("%v and %v differ before one is sent", ofNode, ofSnapshot)
	}
	request := &csi.CreateSnapshotRequest{
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{ofNode}},
	}
	if _, err := proto.Marshal(request); err != nil {
		return err
	}
	show("the node's is sent", ofNode, ofSnapshot)
	same := reflect.DeepEqual(ofNode.GetSegments(), ofSnapshot.GetSegments())
	another := reflect.DeepEqual(ofNode.GetSegments(), elsewhere.GetSegments())
	fmt.Printf("%-20s reflect.DeepEqual %t, and %t with those of another zone\n", "their segments", same, another)
	if !same || another {
		return fmt.Errorf("segments do not tell %v, %v and %v apart", ofNode, ofSnapshot, elsewhere)
	}
	if !proto.Equal(ofNode, ofSnapshot) || reflect.DeepEqual(ofNode, ofSnapshot) {
		return fmt.Errorf("proto.Equal and reflect.DeepEqual say the same of %v and %v", ofNode, ofSnapshot)
	}
	return nil
}

func topology(zone string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{"topology.cinder.csi.openstack.org/zone": zone}}
}

// receive takes a message over the wire.
func receive(sent, received proto.Message) error {
	wire, err := proto.Marshal(sent)
	if err == nil {
		err = proto.Unmarshal(wire, received)
	}
	return err
}

func show(when string, ofNode, ofSnapshot *csi.Topology) {
	fmt.Printf("%-20s proto.Equal %t, reflect.DeepEqual %t, sizeCache %d and %d\n", when,
		proto.Equal(ofNode, ofSnapshot), reflect.DeepEqual(ofNode, ofSnapshot), sizeCache(ofNode), sizeCache(ofSnapshot))
}

// sizeCache is where the encoder notes a message's size. It is no part of what the message says.
func sizeCache(message proto.Message) int64 {
	return reflect.ValueOf(message).Elem().FieldByName("sizeCache").Int()
}
