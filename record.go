package pinion

import (
	"context"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// bigRecord is the size beyond which a single record is compared with the limit before it is sent, so that
// the error names the limit of records and not that of messages.
const bigRecord = 256 << 10

// Put stores one record and returns its log position; when it returns, the record is stored. An empty space is
// the default one. Errors: RECORD_TOO_BIG; BAD_REQUEST for a key of the form of assigned keys; IN_DOUBT.
func (c *Client) Put(ctx context.Context, space string, key, value []byte) (seq uint64, err error) {
	if len(key)+len(value) > bigRecord {
		s, err := c.Settings(ctx)
		if err != nil {
			return 0, err
		}
		if err := buckets.CheckRecord(key, value, s.MaxRecord); err != nil {
			return 0, err
		}
	}
	k := api.Bytes(key)
	var reply api.SeqReply
	err = c.request(ctx, "record.put", api.PutRequest{Space: space, Key: &k, Value: value}, &reply)
	return reply.Seq, err
}

// Get reads one record, with every write that was acknowledged before. It fails with NOT_FOUND if there is none.
func (c *Client) Get(ctx context.Context, space string, key []byte) ([]byte, error) {
	var reply api.GetReply
	err := c.request(ctx, "record.get", api.KeyRequest{Space: space, Key: key}, &reply)
	return reply.Value, err
}

// Delete removes one record, if it is there, and returns the log position of the deletion.
func (c *Client) Delete(ctx context.Context, space string, key []byte) (seq uint64, err error) {
	var reply api.SeqReply
	err = c.request(ctx, "record.delete", api.KeyRequest{Space: space, Key: key}, &reply)
	return reply.Seq, err
}

// Spaces lists the spaces by name.
func (c *Client) Spaces(ctx context.Context) ([]string, error) {
	var reply api.SpacesReply
	err := c.request(ctx, "space.list", nil, &reply)
	return reply.Spaces, err
}

// CreateSpace makes a space known, also while it holds no record; one that exists is no error.
func (c *Client) CreateSpace(ctx context.Context, space string) error {
	return c.request(ctx, "space.create", api.SpaceRequest{Space: space}, nil)
}
