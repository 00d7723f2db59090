package records

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/checkpoint"
)

const (
	prefix = "sha256-"
	// maxFile bounds the size of a file: a record of maxSecrets Secrets has some 30 KiB for
	// each name of its image.
	maxFile = 4 << 20
)

// files are the files of a Store, in upstream's places and format.
type files struct {
	intents checkpoint.Dir[kubeletv1beta1.ImagePullIntent]   // by image
	records checkpoint.Dir[kubeletv1beta1.ImagePulledRecord] // by the image's ID
	// beforeWrite is for tests. It is called with a file's key.
	beforeWrite func(key string) error
}

func newFiles(root string) files {
	dir := filepath.Join(root, "image_manager")
	// Durable: a record must not be lost while the image itself survives.
	format := checkpoint.Format{Codec: checkpoint.JSONLine, DirMode: 0o700, Durable: true, MaxBytes: maxFile}
	naming := checkpoint.Hashed(prefix, sha256.Size)
	return files{
		intents:     checkpoint.Dir[kubeletv1beta1.ImagePullIntent]{Path: filepath.Join(dir, "pulling"), Naming: naming, Format: format},
		records:     checkpoint.Dir[kubeletv1beta1.ImagePulledRecord]{Path: filepath.Join(dir, "pulled"), Naming: naming, Format: format},
		beforeWrite: func(string) error { return nil },
	}
}

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: kind}
}

func write[T any](f files, dir checkpoint.Dir[T], key string, content T) error {
	if err := f.beforeWrite(key); err != nil {
		return err
	}
	return dir.File(key).Write(content)
}

// read returns the zero value if there is no file.
func read[T any](dir checkpoint.Dir[T], key string) (content T, err error) {
	file := dir.File(key)
	content, err = file.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return content, nil
	}
	return content, withPath(file.Path, err)
}

// withPath adds the path to an error that does not have it.
func withPath(path string, err error) error {
	if _, has := errors.AsType[*fs.PathError](err); err == nil || has {
		return err
	}
	return fmt.Errorf("read %s: %w", path, err)
}

// pulledRecord returns the record of an image; nil if there is none.
func (f files) pulledRecord(id string) (*kubeletv1beta1.ImagePulledRecord, error) {
	r, err := read(f.records, id)
	if err != nil || r.ImageRef != id {
		return nil, err
	}
	return &r, nil
}

func (f files) hasIntent(image string) (bool, error) {
	i, err := read(f.intents, image)
	return i.Image == image, err
}

// list calls visit with the content of each file, and returns the errors of those that
// cannot be read.
func list[T any](dir checkpoint.Dir[T], visit func(T)) error {
	var errs []error
	for _, d := range dir.ReadAll(func(_ string, content T) { visit(content) }) {
		errs = append(errs, withPath(d.Path, d.Err))
	}
	return errors.Join(errs...)
}
