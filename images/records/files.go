package records

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/atomicfile"
)

const (
	prefix = "sha256-"
	// maxFile bounds a file that is read: a record of maxSecrets Secrets has some 30 KiB
	// for each name of its image.
	maxFile = 4 << 20
)

// files are the kinds of files of a Store.
type files struct {
	pulling, pulled string
	// write is write, or a test's.
	write func(dir, of string, content any) error
}

func newFiles(root string) files {
	dir := filepath.Join(root, "image_manager")
	return files{pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"), write: write}
}

func name(of string) string { return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(of))) }

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: kind}
}

func write(dir, of string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Durably: a record must not be lost where the image itself survives.
	return atomicfile.WriteDurably(filepath.Join(dir, name(of)), append(data, '\n'), 0o600)
}

// read reads one file into content; false if there is none.
func read(path string, content any) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return true, err
	}
	if err := json.Unmarshal(data, content); err != nil {
		return true, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

func remove(dir, of string) error {
	if err := os.Remove(filepath.Join(dir, name(of))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f files) record(id string) (*kubeletv1beta1.ImagePulledRecord, error) {
	out := &kubeletv1beta1.ImagePulledRecord{}
	there, err := read(filepath.Join(f.pulled, name(id)), out)
	switch {
	case err != nil:
		return nil, err
	case !there || out.ImageRef != id:
		return nil, nil
	}
	return out, nil
}

func (f files) intent(image string) (bool, error) {
	var out kubeletv1beta1.ImagePullIntent
	there, err := read(filepath.Join(f.pulling, name(image)), &out)
	return there && out.Image == image, err
}

// list calls each with the content of every file of a directory that can be read, and
// returns the errors of the others.
func list[T any](dir string, each func(T)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), prefix) || len(e.Name()) != len(prefix)+2*sha256.Size {
			continue
		}
		var content T
		if _, err := read(filepath.Join(dir, e.Name()), &content); err != nil {
			errs = append(errs, err)
			continue
		}
		each(content)
	}
	return errors.Join(errs...)
}
