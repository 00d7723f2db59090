package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

var errNothingSent = errors.New("the container sent nothing")

// unpacker unpacks an archive from a container, which may be malicious. It creates only regular
// files and directories, none above to, and none through a link. It skips links and everything
// else with a warning.
type unpacker struct {
	// prefix is the common prefix of the names in the archive, without a leading slash.
	prefix string
	// to replaces the prefix.
	to   string
	errs io.Writer
}

func (u *unpacker) unpack(from io.Reader) error {
	parent := filepath.Dir(u.to)
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name := filepath.Base(u.to)
	if u.to == parent {
		name = "." // the root or the working directory
	}
	archive, n := tar.NewReader(from), 0
	for ; ; n++ {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return errNothingSent
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what tar in the container sends: %w", err)
		}
		below, ok := u.below(h.Name)
		if !ok {
			return fmt.Errorf("tar in the container sends %s, which is not in %s", printable(h.Name), printable(u.prefix))
		}
		if err := u.make(root, filepath.Join(name, below), h, archive); err != nil {
			return err
		}
	}
}

// below returns a name's path below the prefix. ok is false if the name is not below it.
func (u *unpacker) below(name string) (string, bool) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if u.prefix == "." || u.prefix == "" {
		return clean, filepath.IsLocal(clean)
	}
	if clean == u.prefix {
		return ".", true
	}
	below, ok := strings.CutPrefix(clean, u.prefix+"/")
	return below, ok && filepath.IsLocal(below)
}

func (u *unpacker) make(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
	case tar.TypeSymlink:
		_, _ = fmt.Fprintf(u.errs, "warning: skipping symlink: %q -> %q (podd exec POD -- tar cf - PATH | tar xf - copies links, too)\n", h.Name, h.Linkname)
		return nil
	default:
		_, _ = fmt.Fprintf(u.errs, "warning: skipping %q: it is neither a file nor a directory\n", h.Name)
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
