package podfs

import (
	"path/filepath"
	"strconv"
	"strings"

	"podd/internal/instance"
	"podd/internal/pod"
)

// Dirs are the directories in which podd keeps files of pods. The methods are pure:
// they return paths, which need not exist.
//
//	<Root>/pods/<uid>/
//	    etc-hosts                                     the containers' hosts file
//	    etc-resolv.conf, etc-hostname                 those of its sandbox
//	    userns                                        the pod's range of IDs
//	    containers/<name>/<random>                    a container's termination log
//	    volumes/<plugin>/<volume>                     content of volumes that live with the pod
//	    volume-subpaths/<volume>/<container>/<index>  bind mounts of subPath mounts
//	<PodLogs>/<namespace>_<name>_<uid>/<container>/<restarts>.log
//	<ContainerLogs>/<pod>_<namespace>_<container>-<id>.log   links to those
type Dirs struct {
	// Root is --root-dir; "" is /var/lib/podd.
	Root string
	// PodLogs is podLogsDir; "" is /var/log/pods.
	PodLogs string
	// ContainerLogs holds the links for log shippers; "" is /var/log/containers.
	ContainerLogs string
}

// WithDefaults fills in the directories that are empty.
func (d Dirs) WithDefaults() Dirs {
	for _, f := range []struct {
		dir      *string
		standard string
	}{{&d.Root, instance.DefaultRootDir}, {&d.PodLogs, instance.DefaultPodLogsDir}, {&d.ContainerLogs, instance.DefaultContainerLogsDir}} {
		if *f.dir == "" {
			*f.dir = f.standard
		}
	}
	return d
}

// Pods is the parent of the pods' directories.
func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// Pod is the pod's directory.
func (d Dirs) Pod(uid pod.UID) string { return filepath.Join(d.Pods(), string(uid)) }

// Hosts is the file that the pod's containers have as /etc/hosts.
func (d Dirs) Hosts(uid pod.UID) string { return filepath.Join(d.Pod(uid), "etc-hosts") }

// Files are those on the host that all of the pod's containers may write to.
func (d Dirs) Files(uid pod.UID) []string {
	return []string{d.Hosts(uid), d.ResolvConf(uid), d.Hostname(uid)}
}

// ResolvConf is the file that the pod's containers have as /etc/resolv.conf.
func (d Dirs) ResolvConf(uid pod.UID) string { return filepath.Join(d.Pod(uid), "etc-resolv.conf") }

// Hostname is the file that the pod's containers have as /etc/hostname.
func (d Dirs) Hostname(uid pod.UID) string { return filepath.Join(d.Pod(uid), "etc-hostname") }

// UserNamespace is the record of the pod's range of IDs, in the kubelet's format.
func (d Dirs) UserNamespace(uid pod.UID) string { return filepath.Join(d.Pod(uid), "userns") }

// Containers is the parent of the directories of the pod's containers.
func (d Dirs) Containers(uid pod.UID) string { return filepath.Join(d.Pod(uid), "containers") }

// Container is the container's directory.
func (d Dirs) Container(uid pod.UID, name string) string {
	return filepath.Join(d.Containers(uid), name)
}

// Volumes is the directory of the content of the pod's own volumes.
func (d Dirs) Volumes(uid pod.UID) string { return filepath.Join(d.Pod(uid), "volumes") }

// Volume is the directory of one volume; plugin is upstream's name of its kind
// (kubernetes.io/empty-dir).
func (d Dirs) Volume(uid pod.UID, plugin, volume string) string {
	return filepath.Join(d.Volumes(uid), strings.ReplaceAll(plugin, "/", "~"), volume)
}

// SubPaths is the directory of the pod's bind mounts of subPaths.
func (d Dirs) SubPaths(uid pod.UID) string { return SubPathsIn(d.Pod(uid)) }

// SubPathsIn is SubPaths for the pod with this directory.
func SubPathsIn(podDir string) string { return filepath.Join(podDir, "volume-subpaths") }

// SubPath is the bind mount of a subPath of a volume for a container, by the index of
// its volumeMount.
func (d Dirs) SubPath(uid pod.UID, volume, container string, index int) string {
	return filepath.Join(d.SubPaths(uid), volume, container, strconv.Itoa(index))
}

// VolumeOf returns the name of the volume to which a path below the pod's directory
// belongs; "" for none.
func (d Dirs) VolumeOf(uid pod.UID, path string) string {
	rest, ok := strings.CutPrefix(path, d.Pod(uid)+"/")
	parts := strings.Split(rest, "/")
	switch {
	case ok && parts[0] == "volumes" && len(parts) > 2:
		return parts[2]
	case ok && parts[0] == "volume-subpaths" && len(parts) > 1:
		return parts[1]
	}
	return ""
}

// Logs is the pod's log directory.
func (d Dirs) Logs(namespace, name string, uid pod.UID) string {
	return filepath.Join(d.PodLogs, pod.LogDirectory(namespace, name, uid))
}
