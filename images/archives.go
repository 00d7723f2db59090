package images

import (
	"context"

	"podd/internal/pod"
)

// Archives are what the image directory holds. *archive.Dir is one.
type Archives interface {
	// Missing is told of an image that somebody needs and the runtime does not
	// have. It must not block.
	Missing(ref string)
	// WaitBriefly waits a bounded time for the archives that are being imported,
	// and not at all where none can be. Its error is ctx's.
	WaitBriefly(ctx context.Context) error
	// Holds says whether an image came from an archive that is still there.
	Holds(ref string) bool
}

// archivesFirst lets a pull wait for the archives that are being imported: the
// image may be among them, and on a first start it usually is. An image that
// came from an archive and was removed since comes from there again. What an
// archive holds is never asked of a registry, also not by policy Always: it is
// there so that no registry is needed.
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
		return "", err
	}
	if a.archives.Holds(ref) {
		if image, err := a.Runtime.ImageStatus(ctx, ref); err == nil && image != nil {
			return image.ID, nil
		}
	}
	return a.Runtime.PullImage(ctx, ref, auth, annotations)
}
