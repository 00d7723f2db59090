package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
)

// criNamespace is containerd's namespace of everything that CRI sees.
const criNamespace = "k8s.io"

// pinnedLabel makes CRI report an image as pinned, which keeps the kubelet's and
// podd's garbage collection off. Both parts are containerd's (others use another
// value, which does nothing).
var pinnedLabel = map[string]string{"io.cri-containerd.pinned": "pinned"}

// Containerd imports archives into a containerd by its own API, for CRI has no
// call for that.
type Containerd struct{ client *client.Client }

// DialContainerd connects to containerd's socket; nothing is sent before the
// first call.
func DialContainerd(socket string) (*Containerd, error) {
	c, err := client.New(socket, client.WithDefaultNamespace(criNamespace))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	return &Containerd{client: c}, nil
}

// Close ends the connection.
func (c *Containerd) Close() error { return c.client.Close() }

// Import imports an OCI or docker archive, plain, gzip or zstd, for this
// machine's platform, pins its images and unpacks them. It returns their names
// and blocks for as long as that takes. A *BadArchiveError blames the file.
func (c *Containerd) Import(ctx context.Context, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &BadArchiveError{File: file, Reason: "cannot be read: " + err.Error()}
	}
	defer f.Close()
	r, err := compression.DecompressStream(f)
	if err != nil {
		return nil, &BadArchiveError{File: file, Reason: "cannot be decompressed: " + err.Error()}
	}
	defer r.Close()
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	// A lease keeps what was imported until it is unpacked.
	ctx, done, err := c.client.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask containerd for a lease: %w", err)
	}
	defer done(context.WithoutCancel(ctx))
	images, err := c.client.Import(ctx, r, client.WithImageLabels(pinnedLabel),
		client.WithImageRefTranslator(fullName), client.WithImportPlatform(platforms.DefaultStrict()))
	if err != nil {
		return nil, blame(file, err)
	}
	var refs []string
	for _, image := range images {
		refs = append(refs, image.Name)
		unpack := client.NewImageWithPlatform(c.client, image, platforms.DefaultStrict())
		if err := unpack.Unpack(ctx, ""); err != nil {
			return nil, blame(file, err)
		}
	}
	if len(refs) == 0 {
		return nil, &BadArchiveError{File: file, Reason: "names no image by its full name (registry/name:tag); save it with that name: docker save NAME, podman save --format oci-archive NAME, or skopeo copy … oci-archive:FILE:NAME"}
	}
	return refs, nil
}

// fullName makes the name of an image as pods use it from what an archive calls
// it. A bare tag, which is all that some tools write, is no name.
func fullName(ref string) string {
	if !strings.ContainsAny(ref, "/:@") {
		return ""
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ""
	}
	return named.String()
}

// blame sorts errors of an import: containerd that is away or full is not the
// file's fault, nearly everything else is.
func blame(file string, err error) error {
	switch {
	case errdefs.IsUnavailable(err), errdefs.IsCanceled(err), errdefs.IsDeadlineExceeded(err),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("import %s: containerd does not answer: %w", file, err)
	case strings.Contains(err.Error(), "no space left on device"):
		return fmt.Errorf("import %s: the disk is full: %w", file, err)
	case errdefs.IsNotFound(err) && strings.Contains(err.Error(), "manifest"), strings.Contains(err.Error(), "no match for platform"), strings.Contains(err.Error(), "might be filtered out"):
		return &BadArchiveError{File: file, Reason: "has no image for " + platforms.DefaultString() + " (" + err.Error() + ")"}
	default:
		return &BadArchiveError{File: file, Reason: "is no complete OCI or docker archive (" + err.Error() + "); save the image again, or remove the file"}
	}
}
