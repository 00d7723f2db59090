package pod

// LongestFileName is the kernel's bound for the name of a file, in bytes.
const LongestFileName = 255

// LogDirectory is the name of a pod's log directory, as log shippers know it from the kubelet. A
// pod with a longer one than LongestFileName can never start.
func LogDirectory(namespace, name string, uid UID) string {
	return namespace + "_" + name + "_" + string(uid)
}
