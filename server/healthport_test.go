package server

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// TestAHealthPortThatSomebodyElseHoldsIsServedOnceItIsFree: until then everything else is.
func TestAHealthPortThatSomebodyElseHoldsIsServedOnceItIsFree(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := held.Addr().String()
	s, _ := start(t, func(c *Config) { c.HealthzAddress = address })
	if s.Address("readonly") == nil {
		t.Error("the read-only port is not served while somebody else holds the health port")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("got %s, want 200", answer.Status)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute after the port is free: %v", err)
		}
	}
}
