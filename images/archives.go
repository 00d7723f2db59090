package images

import (
	"context"
	"errors"
	"time"

	"podd/internal/pod"
)

// Archives is the image directory, implemented by *archive.Dir.
type Archives interface {
	// ReportMissing reports an image that is needed and that the runtime does not
	// have. It must not block.
	ReportMissing(ref string)
	// WaitBriefly waits a bounded time for the imports in progress. It returns at
	// once if this runtime cannot import. Its error is ctx's.
	WaitBriefly(ctx context.Context) error
	// Importing reports whether archives remain that may hold an image. It must not
	// block.
	Importing() bool
	// HasImage reports whether an image came from an archive that still exists.
	HasImage(ref string) bool
}

const (
	// importTimeout is how long running imports delay telling a pod that an image is
	// missing, if the pod must not pull it.
	importTimeout = 10 * time.Second
	// importPollInterval is the delay before the image is looked up again, in case it did not come
	// from an archive.
	importPollInterval = time.Second
)

// errAwaitingImport is the error of a pull that ended while it waited for imports.
var errAwaitingImport = errors.New("waiting for images to be imported from archives")

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
		a.archives.ReportMissing(ref)
	}
	return image, err
}

func (a archivesFirst) PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	if err := a.archives.WaitBriefly(ctx); err != nil {
		return "", errors.Join(errAwaitingImport, err)
	}
	if a.archives.HasImage(ref) {
		if image, err := a.Runtime.ImageStatus(ctx, ref); err == nil && image != nil {
			return image.ID, nil
		}
	}
	return a.Runtime.PullImage(ctx, ref, auth, annotations)
}
