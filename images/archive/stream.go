package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// sendChunk is the size of a message: containerd grants twice as much at a time.
const sendChunk = 32 << 10

// errReadArchive marks errors of reading the file, as opposed to containerd's.
var errReadArchive = errors.New("read archive")

// stream is one of containerd's byte streams: its creator names it, and other
// calls refer to it by that name.
type stream struct {
	id     string
	client streamingapi.Streaming_StreamClient
}

// openStream creates a stream and waits until containerd knows its name.
func openStream(ctx context.Context, conn *grpc.ClientConn, kind string) (*stream, error) {
	client, err := streamingapi.NewStreamingClient(conn).Stream(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream{id: kind + "-" + rand.Text(), client: client}
	hello, err := pack(&streamingapi.StreamInit{ID: s.id})
	if err != nil {
		return nil, err
	}
	if err := client.Send(hello); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	// The acknowledgement, or the reason for a failed Send.
	if _, err := client.Recv(); err != nil {
		return nil, err
	}
	return s, nil
}

// send sends all of r, as much at a time as containerd grants, and closes its side. It
// returns when that is done, when containerd needs no more, or when ctx ends.
func (s *stream) send(ctx context.Context, r io.Reader) error {
	defer s.client.CloseSend()
	buf := make([]byte, sendChunk)
	granted := 0
	for ctx.Err() == nil {
		for granted == 0 {
			message, err := s.client.Recv()
			if err != nil {
				return err
			}
			var window transfertypes.WindowUpdate
			if err := proto.Unmarshal(message.Value, &window); err != nil {
				return err
			}
			granted += int(window.Update)
		}
		n, err := r.Read(buf[:min(granted, len(buf))])
		if n > 0 {
			data, packErr := pack(&transfertypes.Data{Data: buf[:n]})
			if packErr != nil {
				return packErr
			}
			if sendErr := s.client.Send(data); sendErr != nil {
				return sendErr
			}
			granted -= n
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errReadArchive, err)
		}
	}
	return ctx.Err()
}

// savedImages reads a transfer's progress to its end and returns the names of the
// stored images.
func (s *stream) savedImages() []string {
	var names []string
	for {
		message, err := s.client.Recv()
		if err != nil {
			return names
		}
		var p transfertypes.Progress
		if proto.Unmarshal(message.Value, &p) == nil && p.Event == "saved" {
			names = append(names, p.Name)
		}
	}
}
