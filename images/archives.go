package images

import (
	"context"
	"errors"
	"time"

	"podd/internal/pod"
)

// Archives is the image directory, implemented by *archive.Dir.
type Archives interface {
	// Missing reports an image that is needed and that the runtime does not
	// have. It must not block.
	Missing(ref string)
	// WaitBriefly waits a bounded time for the imports in progress. It returns at
	// once if this runtime cannot import. Its error is ctx's.
	WaitBriefly(ctx context.Context) error
	// Importing reports whether archives remain that may hold an image. It must not
	// block.
	Importing() bool
	// Holds reports whether an image came from an archive that still exists.
	Holds(ref string) bool
}

const (
	// importPatience is how long running imports delay telling a pod that an image is
	// missing, if the pod must not pull it.
	importPatience = 10 * time.Second
	// importLook is the delay before the image is looked up again, in case it did not come
	// from an archive.
	importLook = time.Second
)

// errNotAsked is the error of a pull that ended while it waited for imports.
var errNotAsked = errors.New("waiting for images to be imported from archives")

// archivesFirst makes a pull wait for the imports in progress: they may include the image,
// and on a first start they usually do. If an image came from an archive and was removed
// since, it is imported again. An image that an archive holds is never requested from a
// registry, not even with policy Always: archives exist so that no registry is needed.
type archivesFirst struct {
	Runtime
	archives Archives
}

func (a archivesFirst) ImageStatus(ctx context.Context, ref string) (*pod.Image, error) {
	image, err := a.Runtime.ImageStatus(ctx, ref)
	if err == nil && image == nil {
		a.archives.Missing(ref)
	}
	return image, err
}

func (a archivesFirst) PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	if err := a.archives.WaitBriefly(ctx); err != nil {
		return "", errors.Join(errNotAsked, err)
	}
	if a.archives.Holds(ref) {
		if image, err := a.Runtime.ImageStatus(ctx, ref); err == nil && image != nil {
			return image.ID, nil
		}
	}
	return a.Runtime.PullImage(ctx, ref, auth, annotations)
}
