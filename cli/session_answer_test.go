package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// TestADaemonThatHasJustStartedIsAskedAgain: what else it answers is final.
func TestADaemonThatHasJustStartedIsAskedAgain(t *testing.T) {
	for code, final := range map[int]bool{http.StatusServiceUnavailable: false, http.StatusNotFound: true, http.StatusInternalServerError: true} {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Read(make([]byte, 4096))
			_, _ = fmt.Fprintf(there, "HTTP/1.1 %d %s\r\nContent-Length: 4\r\n\r\nwhy\n", code, http.StatusText(code))
		}()
		_, err := upgrade(t.Context(), here, "/exec/default/web/main", commandProtocol)
		if err == nil || err.Error() != "why" || isSessionLost(err) == final {
			t.Errorf("%d: got %v, broken off: %v; want %q, final: %v", code, err, isSessionLost(err), "why", final)
		}
		if err := errors.Join(here.Close(), there.Close()); err != nil {
			t.Error(err)
		}
	}
}
