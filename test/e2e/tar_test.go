package e2e

import (
	"archive/tar"
	"bytes"
	"testing"
)

// tarOf is an archive with busybox under a path of its own and as sleep.
func tarOf(t *testing.T, path string, content []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "bin/sleep", Typeflag: tar.TypeSymlink, Linkname: "/" + path, Mode: 0o777},
		{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
