package pod

// ContainerLog is the log file of a running container.
type ContainerLog struct {
	// ID is the container's.
	ID string
	// Path of the live file; rotated ones have a suffix.
	Path string
}
