package pod

// ContainerLog is the file that a running container's output goes to.
type ContainerLog struct {
	// ID is the container's.
	ID string
	// Path of the live file; rotated ones have a suffix.
	Path string
}
