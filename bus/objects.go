package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pinion-mr/pinion/api"
)

const (
	chunkSize       = 512 << 10
	objectPatience  = 5 * time.Second // of a read in which nothing arrives
	objectReadAhead = 4               // chunks
)

// Objects is an object store of a cluster, laid out as NATS does it (ADR-20), so that `nats object`
// reads it. Names are any text. An object that is replaced or deleted while it is read fails its
// readers, so names should not be used twice.
type Objects struct {
	bus    *Bus
	bucket string
	name   string // of its stream
	chunks string // prefix of subjects
	metas  string
	stream jetstream.Stream
}

// Objects opens a store, and makes it first if create is true and it does not exist. It fails with
// UNKNOWN_CLUSTER if it does not exist.
func (b *Bus) Objects(ctx context.Context, name string, create bool, replicas int) (*Objects, error) {
	bucket := b.stream(name)
	o := &Objects{bus: b, bucket: bucket, name: "OBJ_" + bucket, chunks: "$O." + bucket + ".C.", metas: "$O." + bucket + ".M."}
	stream, err := b.openOrMake(ctx, jetstream.StreamConfig{
		Name:        o.name,
		Description: "Pinion's " + strings.ToLower(name) + " of cluster " + b.cfg.Cluster,
		Subjects:    []string{o.chunks + ">", o.metas + ">"},
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardNew,
		Replicas:    max(replicas, 1),
		Duplicates:  defaultDuplicateWindow,
		AllowRollup: true,
		AllowDirect: false, // replicas answered "not found" after an acknowledged put
	}, create)
	if err != nil {
		return nil, err
	}
	o.stream = stream
	return o, nil
}

func (o *Objects) metaSubject(name string) string {
	return o.metas + base64.URLEncoding.EncodeToString([]byte(name))
}

// Put stores what r holds under a name, whole or not at all; an object of that name is replaced. Each
// chunk is tried for 15 s, so a change of leader is waited for.
func (o *Objects) Put(ctx context.Context, name string, r io.Reader) error {
	if name == "" {
		return api.Errorf(api.CodeBadRequest, "an object needs a name")
	}
	old, err := o.info(ctx, name)
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return err
	}
	info := &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: o.chunkSize()}},
		Bucket:     o.bucket, NUID: nuid.Next(),
	}
	if err := o.putChunks(ctx, info, r); err != nil {
		o.purgeChunks(ctx, info.NUID)
		return err
	}
	if err := o.putInfo(ctx, info); err != nil {
		return err // perhaps stored: the chunks stay
	}
	if old != nil {
		o.purgeChunks(ctx, old.NUID)
	}
	return nil
}

func (o *Objects) chunkSize() uint32 {
	return uint32(min(chunkSize, max(o.bus.MaxPayload()-4096, 1024)))
}

func (o *Objects) putChunks(ctx context.Context, info *jetstream.ObjectInfo, r io.Reader) error {
	digest := sha256.New()
	chunk := make([]byte, info.Opts.ChunkSize)
	for {
		n, readErr := io.ReadFull(r, chunk)
		if n > 0 {
			digest.Write(chunk[:n])
			m := nats.NewMsg(o.chunks + info.NUID)
			m.Data = chunk[:n]
			if _, err := o.bus.store(ctx, m, publishPatience); err != nil {
				return fmt.Errorf("bus: object %s, chunk %d: %w", info.Name, info.Chunks, err)
			}
			info.Chunks++
			info.Size += uint64(n)
		}
		switch {
		case readErr == io.EOF || errors.Is(readErr, io.ErrUnexpectedEOF):
			info.Digest = digestText(digest)
			return nil
		case readErr != nil:
			return fmt.Errorf("bus: reading what object %s is to hold: %w", info.Name, readErr)
		}
	}
}

func digestText(h hash.Hash) string {
	return "SHA-256=" + base64.URLEncoding.EncodeToString(h.Sum(nil))
}

func (o *Objects) putInfo(ctx context.Context, info *jetstream.ObjectInfo) error {
	m := nats.NewMsg(o.metaSubject(info.Name))
	m.Header.Set(headerRollup, "sub")
	var err error
	if m.Data, err = json.Marshal(info); err != nil {
		return fmt.Errorf("bus: object %s: %w", info.Name, err)
	}
	_, err = o.bus.store(ctx, m, publishPatience)
	return err
}

// purgeChunks frees the room of chunks that nothing refers to. A failure costs only that room.
func (o *Objects) purgeChunks(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	if err := o.stream.Purge(ctx, jetstream.WithPurgeSubject(o.chunks+id)); err != nil {
		o.bus.log.Warn("chunks of an object not removed", "store", o.bucket, "chunks", id, "error", err)
	}
}

// info reads what is known of an object. The error is NOT_FOUND if it does not exist.
func (o *Objects) info(ctx context.Context, name string) (*jetstream.ObjectInfo, error) {
	m, err := o.bus.lastOf(ctx, o.stream, o.metaSubject(name))
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, o.bus.streamError(ctx, "read object "+name, err)
	}
	var info jetstream.ObjectInfo
	if err == nil {
		if err := json.Unmarshal(m.Data, &info); err != nil {
			return nil, api.Errorf(api.CodeInternal, "the description of object %s in %s cannot be read: %v", name, o.bucket, err)
		}
	}
	if info.NUID == "" || info.Deleted {
		return nil, NoSuchObject(o.bucket, name)
	}
	return &info, nil
}

// NoSuchObject is the error of an object that does not exist.
func NoSuchObject(bucket, name string) *api.Error {
	return api.Errorf(api.CodeNotFound, "no object %s in %s", name, bucket).With("object", name)
}

// Has reports whether an object exists.
func (o *Objects) Has(ctx context.Context, name string) (bool, error) {
	_, err := o.info(ctx, name)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// Delete removes an object; one that does not exist is no error.
func (o *Objects) Delete(ctx context.Context, name string) error {
	info, err := o.info(ctx, name)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	chunks := info.NUID
	info.Deleted, info.Size, info.Chunks, info.Digest, info.ModTime = true, 0, 0, "", time.Time{}
	if err := o.putInfo(ctx, info); err != nil {
		return err
	}
	o.purgeChunks(ctx, chunks)
	return nil
}

// List reads the names and sizes of all objects, in the order of their names.
func (o *Objects) List(ctx context.Context) ([]api.ObjectInfo, error) {
	found := map[string]api.ObjectInfo{} // by subject
	err := o.bus.latest(ctx, &passage{stream: o.name, filters: []string{o.metas + ">"}}, func(d delivery) {
		var info jetstream.ObjectInfo
		if err := json.Unmarshal(d.data, &info); err != nil || info.Deleted {
			delete(found, d.subject)
			return
		}
		found[d.subject] = api.ObjectInfo{Name: info.Name, Size: info.Size}
	})
	if err != nil {
		return nil, o.bus.streamError(ctx, "list the objects of "+o.bucket, err)
	}
	var out []api.ObjectInfo
	for _, info := range found {
		out = append(out, info)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Get opens an object; the error is NOT_FOUND if it does not exist. The reader fails with UNAVAILABLE if
// nothing arrives for 5 s, and if the bytes are not those that were put. Its end (io.EOF) means that
// all of them were checked. Close it in any case.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	info, err := o.info(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.Size == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &objectReader{ctx: ctx, cancel: cancel, info: info, digest: sha256.New(), chunks: make(chan []byte, objectReadAhead), failed: make(chan error, 1)}
	p := &passage{bus: o.bus, stream: o.name, filters: []string{o.chunks + info.NUID}, next: 1, ahead: objectReadAhead}
	go func() { r.failed <- p.run(ctx, nil, r.receive(p)) }()
	return r, nil
}

// objectReader reads the chunks that a passage delivers.
type objectReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	info   *jetstream.ObjectInfo
	digest hash.Hash
	chunks chan []byte
	failed chan error

	rest []byte
	size uint64
	err  error
}

// receive hands chunks over until all of them are.
func (r *objectReader) receive(p *passage) func([]delivery) error {
	left := r.info.Chunks
	return func(batch []delivery) error {
		for _, d := range batch {
			select {
			case r.chunks <- d.data:
			case <-r.ctx.Done():
				return r.ctx.Err()
			}
			p.next = d.seq + 1
			if left--; left == 0 {
				return errDone
			}
		}
		return nil
	}
}

// Read implements [io.Reader].
func (r *objectReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for a chunk.
func (r *objectReader) next() error {
	if r.size >= r.info.Size {
		return r.check()
	}
	select {
	case chunk := <-r.chunks:
		return r.accept(chunk)
	default:
	}
	silence := time.NewTimer(objectPatience)
	defer silence.Stop()
	select {
	case chunk := <-r.chunks:
		return r.accept(chunk)
	case err := <-r.failed:
		r.failed <- err
		select {
		case chunk := <-r.chunks: // it ended because it had delivered all
			return r.accept(chunk)
		default:
		}
		if err == nil {
			err = errors.New("chunks are missing")
		}
		return r.broken(err)
	case <-silence.C:
		return r.broken(fmt.Errorf("nothing arrived for %v", objectPatience))
	}
}

func (r *objectReader) accept(chunk []byte) error {
	r.digest.Write(chunk)
	r.size += uint64(len(chunk))
	r.rest = chunk
	return nil
}

func (r *objectReader) broken(err error) error {
	return api.Errorf(api.CodeUnavailable, "object %s ends after %d of %d bytes: %v", r.info.Name, r.size, r.info.Size, err).
		With("object", r.info.Name)
}

func (r *objectReader) check() error {
	if r.size != r.info.Size || digestText(r.digest) != r.info.Digest {
		return api.Errorf(api.CodeInternal, "object %s is damaged: its bytes are not those that were put", r.info.Name).
			With("object", r.info.Name)
	}
	return io.EOF
}

// Close implements [io.Closer].
func (r *objectReader) Close() error {
	r.cancel()
	r.failed <- <-r.failed
	return nil
}
