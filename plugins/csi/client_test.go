package csi

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/mask"
	"podd/internal/pod"
)

// wantOperations checks csi_operations_seconds: how many calls the metric has, by their labels.
func (n *testNode) wantOperations(want map[string]uint64) {
	n.t.Helper()
	families, err := n.gathers.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := []string{family.GetName()}
			for _, l := range m.Label { // sorted by name
				labels = append(labels, l.GetValue())
			}
			got[strings.Join(labels, " ")] = m.Histogram.GetSampleCount()
		}
	}
	if !maps.Equal(got, want) {
		n.t.Errorf("got calls %v, want %v", got, want)
	}
}

func TestCallsAreCountedByDriverMethodAndCode(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no") })
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("it was set up")
	}
	f.on("NodePublishVolume", nil)
	n.mustSetUp(v)
	n.mustTearDown(v)
	const prefix = "csi_operations_seconds " + driverName
	n.wantOperations(map[string]uint64{
		prefix + " OK /csi.v1.Node/NodeGetCapabilities false":            3,
		prefix + " InvalidArgument /csi.v1.Node/NodePublishVolume false": 1,
		prefix + " OK /csi.v1.Node/NodePublishVolume false":              1,
		prefix + " OK /csi.v1.Node/NodeUnpublishVolume false":            1,
	})
}

// It is registered, and nothing tells when it can answer but another registration.
func TestAPodWaitsForADriverThatCannotSayWhatItCanDo(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	away := func(context.Context) error { return status.Error(codes.Unavailable, "starting") }
	woken := func(what string) {
		t.Helper()
		f.stop()
		eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
		f.serve().register(n)
		if uid := <-n.woken; uid != pod.UID("a") {
			t.Errorf("%s: woke %s", what, uid)
		}
		n.has(driverName)
	}
	const reason = "NodeGetCapabilities: rpc error: code = Unavailable desc = starting"
	f.on("NodeGetCapabilities", away)
	if _, err := n.SetUp(t.Context(), v); err == nil || err.Error() != "kubernetes.io/csi: "+reason {
		t.Errorf("SetUp: got %v", err)
	}
	woken("after SetUp")
	f.on("NodeGetCapabilities", nil)
	n.mustSetUp(v)
	f.on("NodeGetCapabilities", away)
	if err := n.TearDown(t.Context(), v.Dir); err == nil || err.Error() != "kubernetes.io/csi: Unmounter.TearDownAt failed: "+reason {
		t.Errorf("TearDown: got %v", err)
	}
	woken("after TearDown")
	f.on("NodeGetCapabilities", nil)
	n.mustTearDown(v)
	wantCalls(t, f, "Publish", "Unpublish")
}

func TestALongMessageOfADriverIsTruncated(t *testing.T) {
	whole := strings.Repeat("x", maxMessage)
	for name, c := range map[string]struct{ message, want string }{
		"of the greatest length":              {whole, whole},
		"by a byte":                           {whole + "y", whole + "…"},
		"within a character":                  {whole[1:] + "é", whole[1:] + "…"},
		"much too long":                       {strings.Repeat("é", 5000), strings.Repeat("é", maxMessage/2) + "…"},
		"of no characters (invalid in UTF-8)": {"a\xffb", "a�b"},
	} {
		if got := truncated(c.message); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	err := redacted(status.Error(codes.Internal, strings.Repeat("é", 5000)), nil)
	if len(err.Error()) > maxMessage+100 || status.Code(err) != codes.Internal {
		t.Errorf("got %d bytes, code %v", len(err.Error()), status.Code(err))
	}
}

// A value may be the beginning of another, whose rest must not be shown either.
func TestEachValueOfASecretIsMaskedAsAWhole(t *testing.T) {
	secrets := map[string]string{"empty": "", "lines": "two\n"}
	for i, value := range []string{"g", "ge", "geh", "gehe", "gehei", "geheim", "geheim1", "geheim12"} {
		secrets[string(rune('a'+i))] = value
	}
	if got, want := masked("user geheim12, password two, key Z2VoZWltMQ==", secrets), "user "+mask.Value+", password "+mask.Value+", key "+mask.Value; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Only after an answer that is final does the driver do nothing with the volume any more.
func TestWhichAnswersEndAnOperation(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := true
		switch code { // as upstream's isFinalError
		case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
			want = false
		}
		if got := isFinalError(redacted(status.Error(code, "no"), nil)); got != want {
			t.Errorf("%v: got %t, want %t", code, got, want)
		}
	}
	if err := redacted(io.ErrUnexpectedEOF, nil); isFinalError(err) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an error that is no answer: got %v, and that it is final is %t", err, isFinalError(err))
	}
}
