package pod

// Image is an image of the runtime.
type Image struct {
	ID string
	// Tags and Digests are references with repository.
	Tags, Digests []string
	// Size in bytes, as reported by the runtime.
	Size uint64
	// UID and Username are the image's own user. UID is nil if the image has a user name or
	// no user.
	UID      *int64
	Username string
	// Pinned images are never collected.
	Pinned bool
}

// RegistryAuth is one set of credentials for a registry, as CRI takes it, and its source.
type RegistryAuth struct {
	Username, Password, Auth, ServerAddress, IdentityToken, RegistryToken string
	Source                                                                CredentialSource
}

// CredentialSource is the Secret that credentials come from or, if Account is set, the
// service account that they belong to; zero for the node's.
type CredentialSource struct {
	Account              bool
	Namespace, Name, UID string
}
