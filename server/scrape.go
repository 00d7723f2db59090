package server

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
)

// maxScrapes is how many expositions of pods' metrics are written concurrently. Each is some
// 100 KiB for ten pods, and is written as fast as its client reads.
const maxScrapes = 4

// scrape serves metrics that the Runtime writes, compressed for clients that accept it.
func (s *Server) scrape(write func(Runtime, context.Context, io.Writer) error) http.Handler {
	return s.limitConcurrency(s.scrapes, "metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runtime, err := s.attachedRuntime()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		out := &metricsWriter{to: w, compress: acceptsGzip(r)}
		err = write(runtime, r.Context(), out)
		if err == nil {
			err = out.close()
		}
		switch {
		case err != nil && !out.begun:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			s.log.Debug("cannot send metrics", "path", r.URL.Path, "error", err)
			panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
		}
	}))
}

// acceptsGzip reports whether a client takes a compressed response.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// compressors are reused, since each has a window of several 100 KiB.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for an invalid level only
	return z
}}

// metricsWriter is a response with metrics. It sends the header with the first byte, so that an
// error before that can still become the response.
type metricsWriter struct {
	to       http.ResponseWriter
	compress bool
	begun    bool
	zip      *gzip.Writer
}

func (e *metricsWriter) Write(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		h := e.to.Header()
		h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		if e.compress {
			h.Set("Content-Encoding", "gzip")
			e.zip = compressors.Get().(*gzip.Writer)
			e.zip.Reset(e.to)
		}
	}
	if e.zip != nil {
		return e.zip.Write(p)
	}
	return e.to.Write(p)
}

// close finishes a complete response.
func (e *metricsWriter) close() error {
	if e.zip == nil {
		return nil
	}
	err := e.zip.Close()
	compressors.Put(e.zip)
	return err
}
