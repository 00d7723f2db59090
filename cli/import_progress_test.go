package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"podd/images/archive"
)

func TestAPersonSeesEachImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		tell := importProgress(&b)
		took := func(file string, size int64, d time.Duration, err error, refs ...string) {
			tell(archive.Progress{File: file, Size: size})
			time.Sleep(d)
			synctest.Wait()
			tell(archive.Progress{File: file, Size: size, Done: true, Took: d, Err: err, Refs: refs})
		}
		took("/i/web.tar", 4_512_345, 300*time.Millisecond, nil, "localhost/podd/web:1")
		took("/i/big.tar", 1_500_000_000, 12*time.Second, nil, "a:1", "b:1")
		took("/i/bad.tar", 17, 0, errors.New("is no archive"))
		time.Sleep(time.Minute)
		want := `imported web.tar, 4.5 MB in 0.3 s: localhost/podd/web:1
importing big.tar, 1.5 GB …
imported big.tar, 1.5 GB in 12.0 s: a:1, b:1
not imported: bad.tar, 17 B, after 0.0 s
`
		if b.String() != want {
			t.Errorf("got\n%swant\n%s", b.String(), want)
		}
	})
}

func TestWithoutATerminalImportsAreInTheLog(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	log := slog.New(slog.DiscardHandler)
	if tell, got := ImportProgress(null, log); tell != nil || got != log {
		t.Error("a pipe gets lines for a person")
	}
	var b bytes.Buffer
	quiet := slog.New(warningHandler{slog.NewTextHandler(&b, nil)}).With("a", 1)
	quiet.Info("imported images")
	if b.Len() > 0 {
		t.Errorf("reported twice: %s", b.String())
	}
	if quiet.Warn("cannot import images"); b.Len() == 0 {
		t.Error("a warning was lost")
	}
}
