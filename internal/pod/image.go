package pod

// Image is one image that the runtime has.
type Image struct {
	ID string
	// Tags and Digests are references with repository.
	Tags, Digests []string
	// Size in bytes, as the runtime counts.
	Size uint64
	// UID and Username are the image's own user; UID is nil when it names one
	// by name, or none.
	UID      *int64
	Username string
	// Pinned images are never collected.
	Pinned bool
}

// RegistryAuth is one set of credentials for a registry, as CRI takes it.
type RegistryAuth struct {
	Username, Password, Auth, ServerAddress, IdentityToken, RegistryToken string
}
