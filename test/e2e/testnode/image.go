package testnode

import (
	"fmt"
	"os/exec"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// ReadImage returns the first image of an OCI archive, which it unpacks into
// dir: the image reads its layers there.
func ReadImage(dir, archive string) (v1.Image, error) {
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", archive, err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", archive, err)
	}
	if len(list.Manifests) == 0 {
		return nil, fmt.Errorf("no image in %s", archive)
	}
	return index.Image(list.Manifests[0].Digest)
}
