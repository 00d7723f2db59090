package pod

// MaxRuntimeMessage is the limit in bytes of a response of the container runtime, on both
// sides: its lists contain the annotations of all pods, up to 256 KiB per pod. gRPC's usual
// 16 MiB hold 65 such pods. Only responses of that size use the memory.
const MaxRuntimeMessage = 256 << 20
