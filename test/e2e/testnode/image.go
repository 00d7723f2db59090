package testnode

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// ReadImage returns the first image of an OCI archive, which it unpacks into
// dir: the image reads its layers there.
func ReadImage(dir, archive string) (v1.Image, error) {
	index, list, err := readArchive(dir, archive)
	if err != nil {
		return nil, err
	}
	return index.Image(list[0].Digest)
}

// ReadNamed returns the image of an OCI archive that has this name. It unpacks the archive as
// ReadImage does.
func ReadNamed(dir, archive, name string) (v1.Image, error) {
	index, list, err := readArchive(dir, archive)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.Annotations["io.containerd.image.name"] == name {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("no image %s in %s", name, archive)
}

func readArchive(dir, archive string) (v1.ImageIndex, []v1.Descriptor, error) {
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", archive, err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", archive, err)
	}
	if len(list.Manifests) == 0 {
		return nil, nil, fmt.Errorf("no image in %s", archive)
	}
	return index, list.Manifests, nil
}

// Push pushes an image to a repository, as http://host:port/v2/name. It speaks the little of the
// registry's protocol that takes: the library's own client has dependencies that podd has not.
func Push(repo, tag string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		blob, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := send(http.MethodPost, repo+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", blob); err != nil {
			return err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := send(http.MethodPost, repo+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", bytes.NewReader(config)); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	media, err := image.MediaType()
	if err != nil {
		return err
	}
	return send(http.MethodPut, repo+"/manifests/"+tag, string(media), bytes.NewReader(manifest))
}

func send(method, url, media string, body io.Reader) error {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", media)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s: %.300s", method, url, resp.Status, text)
	}
	return nil
}
