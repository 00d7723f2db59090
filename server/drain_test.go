package server

import (
	"bufio"
	"context"
	"net/http"
	"testing"
)

// TestADrainLastsAsLongAsItsConnection: the response comes when no pod is left, and pods
// stay stopped until the client disconnects.
func TestADrainLastsAsLongAsItsConnection(t *testing.T) {
	drained, lifted := make(chan struct{}), make(chan struct{})
	s, _ := start(t, func(c *Config) {
		c.Drain = func(ctx context.Context) <-chan struct{} {
			context.AfterFunc(ctx, func() { close(lifted) })
			return drained
		}
	})
	client := clientOf(s, "socket")
	if response, err := client.Get("http://localhost/podd/v1/drain"); err != nil || response.StatusCode != 405 {
		t.Errorf("GET: got %v, %v, want 405", response, err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/podd/v1/drain", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	responses := make(chan *http.Response, 1)
	go func() {
		if response, err := client.Do(r); err == nil {
			responses <- response
		}
		close(responses)
	}()
	select {
	case <-responses:
		t.Fatal("a response, and there are pods")
	case <-lifted:
		t.Fatal("lifted while there are pods")
	default:
	}
	close(drained)
	response, ok := <-responses
	if !ok {
		t.Fatal("no response")
	}
	defer func() { _ = response.Body.Close() }()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "{\"drained\":true}\n" {
		t.Errorf("got %q, %v", line, err)
	}
	select {
	case <-lifted:
		t.Fatal("lifted while the client was there")
	default:
	}
	hangUp()
	<-lifted
}
