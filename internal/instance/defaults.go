package instance

// The defaults of flags and configuration. The unit files and `make install` use
// the same directories.
const (
	// DefaultRootDir and DefaultStateDir are the defaults of Dirs.
	DefaultRootDir  = "/var/lib/podd"
	DefaultStateDir = "/run/podd"
	DefaultCertDir  = DefaultRootDir + "/pki"
	// DefaultConfigDir is the administrator's: it has configuration, manifests, and the
	// runtime's containerd.d and certs.d.
	DefaultConfigDir = "/etc/podd"

	// DefaultPodLogsDir and DefaultContainerLogsDir are the kubelet's. Log shippers look
	// there.
	DefaultPodLogsDir       = "/var/log/pods"
	DefaultContainerLogsDir = "/var/log/containers"

	// PackagedRuntimeDir and PackagedImagesDir are where a package installs the
	// runtime's binaries and podd's image archives.
	PackagedRuntimeDir = "/usr/libexec/podd"
	PackagedImagesDir  = PackagedRuntimeDir + "/images"
)
