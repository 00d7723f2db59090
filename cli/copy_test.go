package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestPlacesOfFiles(t *testing.T) {
	for text, want := range map[string]fileSpec{
		"web:/etc/hosts": {"web", "/etc/hosts"}, "shop/web:a b": {"shop/web", "a b"}, "web:a:b": {"web", "a:b"},
		"/etc/a:b": {"", "/etc/a:b"}, "./a:b": {"", "./a:b"}, "plain": {"", "plain"}, "../x:y": {"", "../x:y"},
	} {
		if got, err := parseFileSpec(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":x", "web:", "a/b/c:x"} {
		if got, err := parseFileSpec(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// archiveOf makes one of entries as a container might send them.
func archiveOf(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = "content of " + h.Name
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// tree lists what is below a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != dir {
			info, _ := d.Info()
			all = append(all, fmt.Sprintf("%s %v", strings.TrimPrefix(p, dir+"/"), info.Mode()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestNothingOfAnArchiveComesToLieElsewhere(t *testing.T) {
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o4755} }
	for _, c := range []struct {
		name    string
		entries []tar.Header
		fails   string
		want    []string
		warns   string
	}{
		{"a directory", []tar.Header{{Name: "data/d/", Typeflag: tar.TypeDir, Mode: 0o755}, reg("data/d/f")}, "", []string{"to drwxr-xr-x", "to/d drwxr-xr-x", "to/d/f -rwxr-xr-x"}, ""},
		{"a file", []tar.Header{reg("data")}, "", []string{"to -rwxr-xr-x"}, ""},
		{"with a slash", []tar.Header{reg("/data/f")}, "", []string{"to drwxr-xr-x", "to/f -rwxr-xr-x"}, ""},
		{"dots", []tar.Header{reg("data/../../evil")}, "which is not in data", nil, ""},
		{"another name", []tar.Header{reg("evil")}, "which is not in data", nil, ""},
		{"a name that begins alike", []tar.Header{reg("database")}, "which is not in data", nil, ""},
		{"a link and a file through it", []tar.Header{{Name: "data/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, reg("data/l/f")}, "",
			[]string{"to drwxr-xr-x", "to/l drwxr-xr-x", "to/l/f -rwxr-xr-x"}, `skipping symlink: "data/l" -> "/etc"`},
		{"a hard link", []tar.Header{{Name: "data/l", Typeflag: tar.TypeLink, Linkname: "data"}}, "", nil, `skipping "data/l"`},
		{"a device", []tar.Header{{Name: "data/d", Typeflag: tar.TypeBlock, Devmajor: 8}}, "", nil, `skipping "data/d"`},
		{"nothing", nil, "the container sent nothing", nil, ""},
	} {
		dir := t.TempDir()
		var warned bytes.Buffer
		u := &unpacker{prefix: "data", to: filepath.Join(dir, "to"), errs: &warned}
		err := u.unpack(archiveOf(t, c.entries...))
		if (c.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.fails)
		}
		if got := tree(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if !strings.Contains(warned.String(), c.warns) || c.warns == "" && warned.Len() > 0 {
			t.Errorf("%s: warned %q, want %q", c.name, &warned, c.warns)
		}
	}
}

func TestALinkThatLeadsOutIsNotWrittenThrough(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "to"), 0o755), os.Symlink(outside, filepath.Join(dir, "to", "l"))); err != nil {
		t.Fatal(err)
	}
	u := &unpacker{prefix: "data", to: filepath.Join(dir, "to"), errs: &bytes.Buffer{}}
	if err := u.unpack(archiveOf(t, tar.Header{Name: "data/l/f", Typeflag: tar.TypeReg})); err == nil {
		t.Error("it was written")
	}
	if got := tree(t, outside); len(got) > 0 {
		t.Errorf("outside is %q", got)
	}
}

func TestATruncatedArchiveIsAnError(t *testing.T) {
	whole := archiveOf(t, tar.Header{Name: "data", Typeflag: tar.TypeReg})
	u := &unpacker{prefix: "data", to: filepath.Join(t.TempDir(), "to"), errs: &bytes.Buffer{}}
	if err := u.unpack(bytes.NewReader(whole.Bytes()[:515])); err == nil {
		t.Error("no error")
	}
	u.prefix = "data"
	if err := u.unpack(strings.NewReader(strings.Repeat("no archive ", 100))); err == nil {
		t.Error("no error")
	}
}

func TestWhatIsPackedUnpacksToTheSame(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(from+"/a/b", 0o755), os.WriteFile(from+"/a/b/f", []byte("text"), 0o640), os.WriteFile(from+"/x", nil, 0o755), os.Symlink("x", from+"/l")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pack(&b, from, "name"); err != nil {
		t.Fatal(err)
	}
	var warned bytes.Buffer
	u := &unpacker{prefix: "name", to: filepath.Join(dir, "to"), errs: &warned}
	if err := u.unpack(&b); err != nil {
		t.Fatal(err)
	}
	want := []string{"to drwxr-xr-x", "to/a drwxr-xr-x", "to/a/b drwxr-xr-x", "to/a/b/f -rw-r-----", "to/x -rwxr-xr-x"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.Contains(warned.String(), `"name/l" -> "x"`) {
		t.Errorf("warned %q", &warned)
	}
}

// TestACopyResumesWhereItsSessionBrokeOff, with tar, sh and tail of this machine as the
// container's.
func TestACopyResumesWhereItsSessionBrokeOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/it's", bytes.Repeat([]byte("0123456789abcdef"), 1<<12), 0o644); err != nil {
		t.Fatal(err)
	}
	whole, err := exec.Command("tar", "cf", "-", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	broken, final := errors.New("broken"), error(&commandError{name: "tar", how: "failed", exited: true})
	for name, tt := range map[string]struct {
		retries int
		breaks  []int // after so many bytes
		how     error // they break; nil for broken
		last    error // of the attempt after those
		want    error
		told    string
	}{
		"whole":               {},
		"never":               {breaks: []int{1000}, want: broken},
		"often enough":        {retries: 2, breaks: []int{1000, 1}, told: "broken: resuming at byte 1000 (retry 1 of 2)\nbroken: resuming at byte 1001 (retry 2 of 2)\n"},
		"once too often":      {retries: 1, breaks: []int{1000, 1}, want: broken, told: "broken: resuming at byte 1000 (retry 1 of 1)\n"},
		"as often as it must": {retries: -1, breaks: []int{512, 512, 40000}, told: "broken: resuming at byte 512 (retry 1)\nbroken: resuming at byte 1024 (retry 2)\nbroken: resuming at byte 41024 (retry 3)\n"},
		"nothing came":        {retries: -1, breaks: []int{0}, told: "broken: resuming at byte 0 (retry 1)\n"},
		"podd has just begun": {retries: -1, breaks: []int{512, 0}, how: notReadyError("starting"), told: "starting: resuming at byte 512 (retry 1)\nstarting: resuming at byte 512 (retry 2)\n"},
		"tar's own failure":   {retries: -1, last: final, want: final},
		"a refusal":           {retries: -1, last: responseError("no such pod"), want: responseError("no such pod")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got, errs bytes.Buffer
				o := &CopyOptions{Retries: tt.retries}
				attempt := 0
				err := o.tarWithRetries(t.Context(), dir, &got, &errs, func(to io.Writer, words ...string) error {
					out, err := exec.Command(words[0], words[1:]...).Output()
					if err != nil {
						t.Fatalf("%q: %v", words, err)
					}
					if attempt++; attempt <= len(tt.breaks) {
						_, _ = to.Write(out[:tt.breaks[attempt-1]])
						return cmp.Or(tt.how, broken)
					}
					_, _ = to.Write(out)
					return tt.last
				})
				if !errors.Is(err, tt.want) || errs.String() != tt.told {
					t.Errorf("got %v and %q, want %v and %q", err, errs.String(), tt.want, tt.told)
				}
				if tt.want == nil && !bytes.Equal(got.Bytes(), whole) {
					t.Errorf("got %d bytes, want the archive's %d", got.Len(), len(whole))
				}
			})
		})
	}
}

func TestACommandWhoseOutcomeIsNotToldHasNotSucceeded(t *testing.T) {
	if err := readOutcome(strings.NewReader("")); !errors.Is(err, errSessionLost) {
		t.Errorf("got %v", err)
	}
	if err := readOutcome(strings.NewReader(`{"metadata":{},"status":"Success"}`)); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatTheImageDoesNotHaveIsKnownByTheTextOfOSExec(t *testing.T) {
	_, err := exec.LookPath("podd-has-no-such-program")
	if !isProgramMissing(fmt.Errorf("OCI runtime exec failed: %v", err)) {
		t.Errorf("%v: it is not recognized", err)
	}
	for _, other := range []error{nil, errors.New("permission denied"), errors.New("no such file or directory")} {
		if isProgramMissing(other) {
			t.Errorf("%v: it is taken for one", other)
		}
	}
}
