package agent_test

import (
	"context"
	"strings"
	"time"
)

// doShutdown: what a shutdown of the machine asks of podd.
func (s *scenario) doShutdown(words []string) error {
	switch words[0] {
	case "hold-starts":
		var ctx context.Context
		ctx, s.releaseStarts = context.WithCancel(context.Background())
		s.podd.agent.HoldStarts(ctx)
		return nil
	case "release-starts":
		s.releaseStarts()
		return nil
	}
	uid, err := s.wantedUID(words[1])
	if err != nil {
		return err
	}
	within := time.Hour
	for _, arg := range words[2:] {
		if within, err = time.ParseDuration(strings.TrimPrefix(arg, "within=")); err != nil {
			return err
		}
	}
	s.podd.agent.ShutDown(uid, within)
	return nil
}
