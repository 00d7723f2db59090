package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of every file and of every image: the content decides the
// digest, not the hour of the build.
var epoch = time.Unix(0, 0).UTC()

// image is one layer of files, on top of one of others if there is a base, and the
// configuration to run them with.
type image struct {
	base   []byte // a tar
	files  []file
	config v1.Config
}

// file is an entry of the layer: content, a link's target, or (neither) a directory.
type file struct {
	path    string
	mode    int64
	content []byte
	link    string
}

// layer is an uncompressed tar: these images are unpacked on the machine that
// built them, where gzip would only cost the first pod its time.
func (i *image) layer() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	sort.Slice(i.files, func(a, b int) bool { return i.files[a].path < i.files[b].path })
	for _, f := range i.files {
		h := &tar.Header{Name: f.path, Mode: f.mode, ModTime: epoch, Format: tar.FormatPAX}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		case f.content != nil:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.content))
		default:
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// layers are at least one: an image of the base alone has no other.
func (i *image) layers() ([][]byte, error) {
	if i.base != nil && len(i.files) == 0 {
		return [][]byte{i.base}, nil
	}
	own, err := i.layer()
	if err != nil || i.base == nil {
		return [][]byte{own}, err
	}
	return [][]byte{i.base, own}, nil
}

func (i *image) build() (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	layers, err := i.layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   static.NewLayer(layer, types.OCIUncompressedLayer),
			History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "podd hack/mkimages"},
		})
		if err != nil {
			return nil, err
		}
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Created, cf.Config = "linux", architecture, v1.Time{Time: epoch}, i.config
	return mutate.ConfigFile(img, cf)
}

// write makes the archive of one image.
func (i *image) write(path, name string) error {
	return writeArchive(path, []named{{[]string{name}, i}})
}

// named is an image with its names.
type named struct {
	names []string
	image *image
}

// writeArchive makes an archive of images: the OCI image layout in a tar, with the images'
// names in the annotations that containerd and others read. What several images have in
// common is in it once.
func writeArchive(path string, images []named) error {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	content := map[string][]byte{}
	for _, n := range images {
		img, err := n.image.build()
		if err != nil {
			return err
		}
		blobs, manifest, err := blobsOf(img)
		if err != nil {
			return err
		}
		maps.Copy(content, blobs)
		for _, name := range n.names {
			index.Manifests = append(index.Manifests, v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Size:      int64(len(blobs[manifest])),
				Digest:    v1.Hash{Algorithm: "sha256", Hex: manifest},
				Platform:  &v1.Platform{OS: "linux", Architecture: architecture},
				Annotations: map[string]string{
					"io.containerd.image.name":          name,
					"org.opencontainers.image.ref.name": name,
				},
			})
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	archive := &image{files: []file{
		{path: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{path: "index.json", mode: 0o644, content: text},
		{path: "blobs", mode: 0o755}, {path: "blobs/sha256", mode: 0o755},
	}}
	for digest, blob := range content {
		archive.files = append(archive.files, file{path: "blobs/sha256/" + digest, mode: 0o644, content: blob})
	}
	data, err := archive.layer()
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// blobsOf returns the image's content by sha256, and the manifest's digest.
func blobsOf(img v1.Image) (map[string][]byte, string, error) {
	blobs := map[string][]byte{}
	put := func(b []byte) string {
		sum := sha256.Sum256(b)
		digest := hex.EncodeToString(sum[:])
		blobs[digest] = b
		return digest
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, "", err
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			return nil, "", err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, "", err
		}
		put(b)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, "", err
	}
	put(config)
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, "", err
	}
	return blobs, put(manifest), nil
}

// writeFile replaces path in one step, and only if its content changes: podd
// imports an archive again when its file is written anew.
func writeFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".mkimages-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
