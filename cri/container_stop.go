package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopTurn is how long one stop goes on while others wait for their turn. Most
// containers end sooner than that; one that uses its grace period up gets the next turn
// after the others had theirs.
const stopTurn = time.Second

// StopContainer sends the stop signal, and KILL after grace (rounded up to whole
// seconds; 0 kills at once). The grace period begins with the signal: few stops go on at
// the same time, and the wait for the first turn does not shorten it. It blocks until the
// container is dead. A container that does not exist counts as stopped. One that does not
// die is a context.DeadlineExceeded.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	var until time.Time // of the grace period
	for {
		leave, err := c.slots[stopping].Enter(ctx)
		if err != nil {
			return mapError("stop container "+short(id), ctx.Err())
		}
		if until.IsZero() {
			until = time.Now().Add(max(grace, 0))
		}
		over, err := c.stopForATurn(ctx, id, time.Until(until))
		leave()
		if over {
			return err
		}
	}
}

// errTurnOver is the cause of ending a turn.
var errTurnOver = errors.New("others wait to stop their containers")

// stopForATurn stops a container; over is false if its turn ended first. What the
// runtime has sent by then it does not send again, and it kills nothing early.
func (c *Client) stopForATurn(ctx context.Context, id string, grace time.Duration) (over bool, err error) {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		turn := time.NewTicker(stopTurn)
		defer turn.Stop()
		for {
			select {
			case <-call.Done():
				return
			case <-turn.C:
				if c.slots[stopping].Waiting() > 0 {
					cancel(errTurnOver)
				}
			}
		}
	}()
	seconds := int64(math.Ceil(max(grace, 0).Seconds()))
	_, err = c.runtime.StopContainer(call, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	err = mapError("stop container "+short(id), err)
	switch {
	case err == nil || gone(err):
		return true, nil
	case errors.Is(context.Cause(call), errTurnOver):
		return false, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return true, fmt.Errorf("%w: it was to be killed and has not exited: its processes wait in the kernel for a device or a server, or the runtime hangs", err)
	}
	return true, err
}

// RemoveContainer removes a container that does not run, but none of its files. A
// container that does not exist counts as removed.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err := mapError("remove container "+short(id), err); err != nil && !gone(err) {
		return err
	}
	c.roster.removedContainer(id)
	return nil
}
