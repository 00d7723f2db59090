package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

const (
	// watchGap is the minimum time between two updates for a watcher.
	watchGap = 100 * time.Millisecond
	// watchPoll is the interval of updates for a watcher without Config.Changes.
	watchPoll = 2 * time.Second
)

// errStopping is the cancellation cause of a stream's context when podd stops.
var errStopping = errors.New("podd is stopping")

// stream is middleware for responses that last until the client disconnects: log follow, exec,
// watch. The context of such a request ends when podd stops, and the handler must then return
// at once; other requests get time to finish. The handler must set the deadline of each write,
// since writeTimeout applies to the whole response. A handler that hijacks its connection must
// close it.
func (s *Server) stream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		go func() {
			select {
			case <-s.stopping:
				cancel(errStopping)
			case <-ctx.Done():
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// setWriteDeadline sets the write deadline of a response; zero removes it. Over HTTP/2 a
// deadline that passes ends the stream, even if nothing is being written. A response that waits
// for something must therefore have no deadline meanwhile.
func (s *Server) setWriteDeadline(w http.ResponseWriter, d time.Duration) error {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	return http.NewResponseController(w).SetWriteDeadline(at)
}

// deferWriteDeadline is middleware for handlers that may take longer than writeTimeout before
// they write their response. Writing it then gets writeTimeout.
func (s *Server) deferWriteDeadline(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.setWriteDeadline(w, 0); err != nil {
			s.log.Debug("cannot lift the deadline of a response", "path", r.URL.Path, "error", err)
		}
		next(&deferredDeadlineWriter{ResponseWriter: w, s: s}, r)
	}
}

// deferredDeadlineWriter is a response that starts its deadline with its first byte.
type deferredDeadlineWriter struct {
	http.ResponseWriter
	s     *Server
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (l *deferredDeadlineWriter) WriteHeader(code int) {
	l.startDeadline()
	l.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (l *deferredDeadlineWriter) Write(p []byte) (int, error) {
	l.startDeadline()
	return l.ResponseWriter.Write(p)
}

// Unwrap serves http.ResponseController.
func (l *deferredDeadlineWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *deferredDeadlineWriter) startDeadline() {
	if !l.begun {
		l.begun = true
		_ = l.s.setWriteDeadline(l.ResponseWriter, writeTimeout) // without a deadline, the client may only be slow
	}
}

// watchable responds once. With ?watch it writes one JSON value per line, a new one after each
// change, until the client disconnects or podd stops.
func (s *Server) watchable(value func(*http.Request) any) http.Handler {
	once := s.serveJSON(value)
	watch := s.stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.watch(w, r, value) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.URL.Query()["watch"]; ok {
			watch.ServeHTTP(w, r)
			return
		}
		once.ServeHTTP(w, r)
	})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, value func(*http.Request) any) {
	changed, stop := s.subscribe()
	defer stop()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	for {
		// A client that does not read for that long is gone.
		err := s.setWriteDeadline(w, writeTimeout)
		if err == nil {
			err = json.NewEncoder(w).Encode(value(r))
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil || !wait(r, time.After(watchGap), nil) || !wait(r, nil, changed) {
			return
		}
	}
}

// wait returns true when either channel receives, false when the request ends.
func wait(r *http.Request, a <-chan time.Time, b <-chan struct{}) bool {
	select {
	case <-a:
	case <-b:
	case <-r.Context().Done():
		return false
	}
	return true
}

// subscribe merges the sources of changes into one channel.
func (s *Server) subscribe() (<-chan struct{}, func()) {
	out, done := make(chan struct{}, 1), make(chan struct{})
	poke := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	for _, source := range s.config.Changes {
		c, stop := source() // subscribe now, so that no change after the first answer is missed
		go func() {
			defer stop()
			for {
				select {
				case <-c:
					poke()
				case <-done:
					return
				}
			}
		}()
	}
	if len(s.config.Changes) == 0 {
		go func() {
			tick := time.NewTicker(watchPoll)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					poke()
				case <-done:
					return
				}
			}
		}()
	}
	return out, func() { close(done) }
}
