package places

// Where things are unless a flag or the configuration says otherwise. The unit
// files and `make install` know the same places.
const (
	// DefaultRootDir and DefaultStateDir are Dirs of a podd that is told none.
	DefaultRootDir  = "/var/lib/podd"
	DefaultStateDir = "/run/podd"
	DefaultCertDir  = DefaultRootDir + "/pki"
	// DefaultConfigDir is the administrator's: configuration, manifests, and the
	// runtime's containerd.d and certs.d.
	DefaultConfigDir = "/etc/podd"

	// DefaultPodLogsDir and DefaultContainerLogsDir are where every kubelet has
	// them, and log shippers look.
	DefaultPodLogsDir       = "/var/log/pods"
	DefaultContainerLogsDir = "/var/log/containers"

	// PackagedRuntimeDir and PackagedImagesDir are where a package puts the
	// runtime's binaries and the archives that belong to podd.
	PackagedRuntimeDir = "/usr/lib/podd"
	PackagedImagesDir  = PackagedRuntimeDir + "/images"
)
