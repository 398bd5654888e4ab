module github.com/cinder-csi/cinder-csi/tests/tools/contracts

go 1.26.0

require (
	github.com/container-storage-interface/spec v1.13.0
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.11
	k8s.io/kubelet v0.36.3
)
