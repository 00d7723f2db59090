package pod

// MaxRuntimeMessage is the limit in bytes of a response of the container runtime, on
// both sides: its lists contain the annotations of all pods, up to 256 KiB per pod.
// gRPC's usual 16 MiB are 65 such pods. Memory is only used for responses of that
// size.
const MaxRuntimeMessage = 256 << 20
