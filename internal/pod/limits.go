package pod

// MaxRuntimeMessage is how many bytes one answer of the container runtime may
// have, at both ends: its lists carry the annotations of all pods, of which each
// pod may have 256 KiB. gRPC's usual 16 MiB are 65 such pods. No memory is taken
// before an answer is that large.
const MaxRuntimeMessage = 256 << 20
