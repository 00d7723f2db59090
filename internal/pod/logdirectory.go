package pod

import "strings"

// MaxFileNameLength is the kernel's limit for a file's name, in bytes.
const MaxFileNameLength = 255

// LogDirectory returns the name of a pod's log directory, as log shippers know it from the
// kubelet. A pod with a name longer than MaxFileNameLength can never start.
func LogDirectory(namespace, name string, uid UID) string {
	return namespace + "_" + name + "_" + string(uid)
}

// ParseLogDirectory returns the names in the log directory of the pod with this UID:
// neither has a "_". ok is false for any other directory.
func ParseLogDirectory(dir string, uid UID) (namespace, name string, ok bool) {
	rest, ok := strings.CutSuffix(dir, "_"+string(uid))
	if !ok || uid == "" {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, "_")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "_")
}
