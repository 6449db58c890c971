/* Kernels: what takes most of the time with records, in C.

   `octopi/record_format.py` describes the format.  The loops of `octopi/record.py` and
   `octopi/record_encoding.py` are the reference: each function here does what one of them does, for
   *plain* records only, and stops in front of the first other one.  Python looks at that one, and
   may go on behind it with the same function.  So only Python words errors, and everything works
   without this file (`octopi/kernels.py`).

   A record is plain if it is whole and of version 2, its length and key_length are legal, its
   reserved bytes are zero, it has no headers, and its checksum is right.

   Rules: nothing outside of a buffer is read, whatever is in it; no thread, and no state but the
   tables of the checksum; the interpreter's lock is held, because a call takes less than a
   millisecond for 1 MiB.  Only the stable interface of Python 3.11 is used, so that one file serves
   all later versions. */

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_CLMUL_CODE 1
#include <immintrin.h>
#else
#define HAS_CLMUL_CODE 0
#endif

#ifndef OCTOPI_SOURCE
#define OCTOPI_SOURCE "unknown"
#endif

#if PY_SSIZE_T_MAX < INT32_MAX
#error "sizes of records have to fit Py_ssize_t"
#endif

/* --- the format (octopi/record_format.py) ----------------------------------------------------- */

enum {
    LENGTH_BYTES = 4,
    CHECKSUM_END = 9, /* what is checked begins here, with the request id */
    REQUEST_ID_BYTES = 32,
    PRODUCER_BYTES = 20, /* producer id and epoch */
    STRUCTURED = 2,
    STRUCTURED_BYTES_MIN = 57,
    RECORD_BYTES_MAX = 8 * 1024 * 1024, /* octopi/limits.py */
    MESSAGE_FIELDS = 9,

    AT_VERSION = 4,
    AT_CHECKSUM = 5,
    AT_RESERVED = 29,
    AT_SEQUENCE = 33,
    AT_TIMESTAMP = 41,
    AT_KEY_LENGTH = 49,
    AT_HEADERS_LENGTH = 53,
};

#define NO_KEY 0xFFFFFFFFu

static uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t load64(const uint8_t *at)
{
    return (uint64_t)load32(at) << 32 | load32(at + 4);
}

static void store32(uint8_t *at, uint32_t number)
{
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

static void store64(uint8_t *at, uint64_t number)
{
    store32(at, (uint32_t)(number >> 32));
    store32(at + 4, (uint32_t)number);
}

/* --- CRC-32 (IEEE 802.3, reflected), as zlib.crc32 -------------------------------------------- */

/* Functions that continue a checksum take and return it without the inversions at both ends. */
typedef uint32_t (*Checksum)(uint32_t crc, const uint8_t *data, size_t size);

/* TABLES[n][b]: the remainder of byte b with n zero bytes behind it. */
static uint32_t TABLES[8][256];

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        TABLES[0][byte] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = TABLES[zeros - 1][byte];
            TABLES[zeros][byte] = before >> 8 ^ TABLES[0][before & 0xFF];
        }
}

static uint32_t load32_little(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* Eight bytes at a time ("slicing by 8", Kounavis and Berry, 2005). */
static uint32_t checksum_by_tables(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ load32_little(data), high = load32_little(data + 4);
        crc = TABLES[7][low & 0xFF] ^ TABLES[6][low >> 8 & 0xFF]
            ^ TABLES[5][low >> 16 & 0xFF] ^ TABLES[4][low >> 24]
            ^ TABLES[3][high & 0xFF] ^ TABLES[2][high >> 8 & 0xFF]
            ^ TABLES[1][high >> 16 & 0xFF] ^ TABLES[0][high >> 24];
    }
    if (size >= 4) {
        crc ^= load32_little(data);
        crc = TABLES[3][crc & 0xFF] ^ TABLES[2][crc >> 8 & 0xFF]
            ^ TABLES[1][crc >> 16 & 0xFF] ^ TABLES[0][crc >> 24];
        data += 4, size -= 4;
    }
    for (; size; data++, size--)
        crc = crc >> 8 ^ TABLES[0][(crc ^ *data) & 0xFF];
    return crc;
}

#if HAS_CLMUL_CODE

#define WITH_CLMUL __attribute__((target("pclmul,sse4.1")))

/* *folded* moved on by the distance for which *keys* were made, and *data* added there. */
WITH_CLMUL static inline __m128i fold(__m128i folded, __m128i keys, __m128i data)
{
    __m128i low = _mm_clmulepi64_si128(folded, keys, 0x00);
    __m128i high = _mm_clmulepi64_si128(folded, keys, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

WITH_CLMUL static inline __m128i load128(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* 64, then 16 bytes at a time, with carry-less multiplications; the rest by tables.  The method and
   the constants, powers of x modulo the polynomial, bits reflected, are those of Gopal et al.,
   "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. */
WITH_CLMUL static uint32_t checksum_by_clmul(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i by_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_8_bytes = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x1f7011641, 0x1db710641); /* inverse, itself */
    const __m128i low_32_bits = _mm_set_epi32(0, -1, 0, -1);

    if (size < 32)
        return checksum_by_tables(crc, data, size);
    __m128i folded = _mm_xor_si128(load128(data), _mm_cvtsi32_si128((int)crc));
    if (size >= 64) {
        __m128i second = load128(data + 16), third = load128(data + 32);
        __m128i fourth = load128(data + 48);
        for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
            folded = fold(folded, by_64_bytes, load128(data));
            second = fold(second, by_64_bytes, load128(data + 16));
            third = fold(third, by_64_bytes, load128(data + 32));
            fourth = fold(fourth, by_64_bytes, load128(data + 48));
        }
        folded = fold(folded, by_16_bytes, second);
        folded = fold(folded, by_16_bytes, third);
        folded = fold(folded, by_16_bytes, fourth);
    } else {
        data += 16, size -= 16;
    }
    for (; size >= 16; data += 16, size -= 16)
        folded = fold(folded, by_16_bytes, load128(data));
    /* 128 bits to 96, then to 64. */
    folded = _mm_xor_si128(
        _mm_clmulepi64_si128(folded, by_16_bytes, 0x10), _mm_srli_si128(folded, 8));
    folded = _mm_xor_si128(
        _mm_clmulepi64_si128(_mm_and_si128(folded, low_32_bits), by_8_bytes, 0x00),
        _mm_srli_si128(folded, 4));
    /* To 32: Barrett's reduction. */
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(folded, low_32_bits), polynomial, 0x10);
    __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32_bits), polynomial, 0x00);
    crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(folded, product), 1);
    return checksum_by_tables(crc, data, size);
}

static int has_clmul(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#endif

static Checksum best_checksum = checksum_by_tables;

static uint32_t checksum(const uint8_t *data, size_t size)
{
    return ~best_checksum(0xFFFFFFFFu, data, size);
}

/* --- one record ------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t bytes; /* of the whole record */
    const uint8_t *key; /* NULL: it has none */
    Py_ssize_t key_bytes;
    const uint8_t *value;
    Py_ssize_t value_bytes;
} Record;

/* Look at the record at *at*, behind which *left* bytes of the buffer follow, its own included.
   Return 1, and where its parts are, if it is plain; else 0. */
static int is_plain(const uint8_t *at, Py_ssize_t left, Record *record)
{
    if (left < STRUCTURED_BYTES_MIN || at[AT_VERSION] != STRUCTURED)
        return 0;
    uint32_t length = load32(at);
    if (length < STRUCTURED_BYTES_MIN - LENGTH_BYTES || length > RECORD_BYTES_MAX - LENGTH_BYTES)
        return 0;
    record->bytes = (Py_ssize_t)length + LENGTH_BYTES; /* 8 MiB at most */
    if (record->bytes > left || load32(at + AT_RESERVED) || load32(at + AT_HEADERS_LENGTH))
        return 0;
    uint32_t key_length = load32(at + AT_KEY_LENGTH);
    Py_ssize_t payload_bytes = record->bytes - STRUCTURED_BYTES_MIN;
    record->key = NULL;
    record->key_bytes = 0;
    if (key_length != NO_KEY) {
        if (key_length > (uint32_t)payload_bytes)
            return 0;
        record->key = at + STRUCTURED_BYTES_MIN;
        record->key_bytes = (Py_ssize_t)key_length;
    }
    record->value = at + STRUCTURED_BYTES_MIN + record->key_bytes;
    record->value_bytes = payload_bytes - record->key_bytes;
    return checksum(at + CHECKSUM_END, (size_t)record->bytes - CHECKSUM_END)
        == load32(at + AT_CHECKSUM);
}

/* --- arguments -------------------------------------------------------------------------------- */

static PyObject *bytes_of(const uint8_t *data, Py_ssize_t size)
{
    return PyBytes_FromStringAndSize((const char *)data, size);
}

static int is_number_of_arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, given);
    return 0;
}

/* Take the buffer and a position in it.  Return 0, or -1 with an exception.  After 0 the buffer has
   to be released. */
static int take_buffer(PyObject *given, PyObject *at, Py_buffer *buffer, Py_ssize_t *position)
{
    *position = PyLong_AsSsize_t(at);
    if (*position == -1 && PyErr_Occurred())
        return -1;
    if (PyObject_GetBuffer(given, buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (*position >= 0 && *position <= buffer->len)
        return 0;
    PyBuffer_Release(buffer);
    PyErr_SetString(PyExc_ValueError, "the position is outside of the buffer");
    return -1;
}

/* Take the offset of the buffer's first byte.  Return 1 if every position in the buffer has an
   offset below 2**63, else 0, without an exception; -1 with one, if it is no integer. */
static int take_base_offset(PyObject *given, Py_ssize_t size, int64_t *base_offset)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(given, &overflow);
    if (number == -1 && PyErr_Occurred())
        return -1;
    *base_offset = number;
    return !overflow && number >= 0 && number <= INT64_MAX - size;
}

/* --- scan ------------------------------------------------------------------------------------- */

/* scan(buffer, position, limit, producer, sequence, timestamp_max_ms)
       -> (position, sequence, timestamp_max_ms)

   Walk over plain records that continue a run: those of *producer* (producer id and epoch, 20
   bytes) with the sequences after *sequence*.  It stops in front of the first other record, and of
   the first that starts at *limit* or behind it.  Returned are where it stopped, the sequence of
   the last record of the run, and the largest time stamp, that given included. */
static PyObject *scan(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer buffer;
    Py_ssize_t position;
    if (!is_number_of_arguments(count, 6))
        return NULL;
    Py_ssize_t limit = PyLong_AsSsize_t(arguments[2]);
    uint64_t sequence = PyLong_AsUnsignedLongLong(arguments[4]);
    uint64_t timestamp_max = PyLong_AsUnsignedLongLong(arguments[5]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyBytes_Check(arguments[3]) || PyBytes_Size(arguments[3]) != PRODUCER_BYTES)
        return PyErr_Format(PyExc_ValueError, "a producer has %d bytes", PRODUCER_BYTES);
    const char *producer = PyBytes_AsString(arguments[3]);
    if (take_buffer(arguments[0], arguments[1], &buffer, &position) < 0)
        return NULL;
    const uint8_t *data = buffer.buf;
    Record record;
    while (position < limit && sequence < UINT64_MAX
           && is_plain(data + position, buffer.len - position, &record)) {
        const uint8_t *at = data + position;
        if (load64(at + AT_SEQUENCE) != sequence + 1
            || memcmp(at + CHECKSUM_END, producer, PRODUCER_BYTES) != 0)
            break;
        uint64_t timestamp = load64(at + AT_TIMESTAMP);
        if (timestamp > timestamp_max)
            timestamp_max = timestamp;
        sequence++;
        position += record.bytes;
    }
    PyBuffer_Release(&buffer);
    return Py_BuildValue("nKK", position, (unsigned long long)sequence,
                         (unsigned long long)timestamp_max);
}

/* --- decode ----------------------------------------------------------------------------------- */

/* What is the same in all messages of a call. */
typedef struct {
    PyTypeObject *type;
    allocfunc allocate; /* of that type */
    newfunc new_of_tuple; /* tuple.__new__ */
    PyObject *topic;
    PyObject *partition;
    PyObject *no_headers;
} MessageMaker;

/* Whether messages are made by tuple.__new__, which copies a tuple.  Python 3.14 has tuples with a
   field that only Python itself can set.  Before, a message is allocated and filled in place. */
static int messages_by_new =
#ifdef OCTOPI_MESSAGES_BY_NEW
    1;
#else
    0;
#endif

/* The message with the fields of *tuple*, which is given up; NULL with an exception. */
static PyObject *message_of_tuple(const MessageMaker *maker, PyObject *tuple)
{
    PyObject *arguments = PyTuple_Pack(1, tuple);
    Py_DECREF(tuple);
    if (arguments == NULL)
        return NULL;
    PyObject *message = maker->new_of_tuple(maker->type, arguments, NULL);
    Py_DECREF(arguments);
    return message;
}

/* A message of the plain record at *at*; NULL with an exception.  The objects given stay the
   caller's. */
static PyObject *new_message(const MessageMaker *maker, const uint8_t *at, const Record *record,
                             PyObject *offset, PyObject *next_offset, PyObject *timestamp)
{
    PyObject *message = messages_by_new ? PyTuple_New(MESSAGE_FIELDS)
                                        : maker->allocate(maker->type, MESSAGE_FIELDS);
    if (message == NULL)
        return NULL;
    PyObject *key = record->key == NULL ? Py_NewRef(Py_None)
                                        : bytes_of(record->key, record->key_bytes);
    PyObject *fields[MESSAGE_FIELDS] = {
        Py_NewRef(maker->topic),
        Py_NewRef(maker->partition),
        Py_NewRef(offset),
        Py_NewRef(next_offset),
        Py_NewRef(timestamp),
        key,
        bytes_of(record->value, record->value_bytes),
        Py_NewRef(maker->no_headers),
        bytes_of(at + CHECKSUM_END, REQUEST_ID_BYTES),
    };
    int failed = 0;
    for (Py_ssize_t index = 0; index < MESSAGE_FIELDS; index++)
        /* It takes the field over, also if it fails. */
        if (fields[index] == NULL || PyTuple_SetItem(message, index, fields[index]) < 0)
            failed = 1;
    if (failed) {
        Py_DECREF(message);
        return NULL;
    }
    if (messages_by_new && (message = message_of_tuple(maker, message)) == NULL)
        return NULL;
    /* Nothing in it refers to the message, so it needs no garbage collector, whose work was 40 % of
       a consumer's time. */
    PyObject_GC_UnTrack(message);
    return message;
}

/* decode(buffer, position, base_offset, topic, partition, message_type, no_headers, messages)
       -> position

   Append the messages of the plain records from *position* on to the list *messages*, and return
   where it stopped.  *message_type* is a subclass of tuple with the fields of
   `octopi.record.Message`; *no_headers* is the mapping that messages without headers have.  It
   stops at once if an offset doesn't fit 63 bits. */
static PyObject *decode(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer buffer;
    Py_ssize_t position;
    int64_t base_offset;
    if (!is_number_of_arguments(count, 8))
        return NULL;
    PyObject *type = arguments[5], *messages = arguments[7];
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)
        || !PyList_Check(messages))
        return PyErr_Format(PyExc_TypeError, "messages are tuples, in a list");
    MessageMaker maker = {
        .type = (PyTypeObject *)type,
        .allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc),
        .new_of_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new),
        .topic = arguments[3],
        .partition = arguments[4],
        .no_headers = arguments[6],
    };
    if (take_buffer(arguments[0], arguments[1], &buffer, &position) < 0)
        return NULL;
    PyObject *offset = NULL, *timestamp = NULL, *result = NULL;
    uint64_t timestamp_ms = 0;
    Record record;
    int fits = take_base_offset(arguments[2], buffer.len, &base_offset);
    if (fits < 0)
        goto end;
    const uint8_t *data = buffer.buf;
    while (fits && is_plain(data + position, buffer.len - position, &record)) {
        const uint8_t *at = data + position;
        /* Many records have the time stamp of the one before, and each begins where that ended. */
        if (timestamp == NULL || timestamp_ms != load64(at + AT_TIMESTAMP)) {
            timestamp_ms = load64(at + AT_TIMESTAMP);
            Py_XDECREF(timestamp);
            timestamp = PyLong_FromUnsignedLongLong(timestamp_ms);
        }
        if (offset == NULL)
            offset = PyLong_FromLongLong(base_offset + position);
        PyObject *next_offset = PyLong_FromLongLong(base_offset + position + record.bytes);
        PyObject *message = NULL;
        if (timestamp != NULL && offset != NULL && next_offset != NULL)
            message = new_message(&maker, at, &record, offset, next_offset, timestamp);
        Py_XDECREF(offset);
        offset = next_offset;
        if (message == NULL)
            goto end;
        int failed = PyList_Append(messages, message);
        Py_DECREF(message);
        if (failed)
            goto end;
        position += record.bytes;
    }
    result = PyLong_FromSsize_t(position);
end:
    Py_XDECREF(offset);
    Py_XDECREF(timestamp);
    PyBuffer_Release(&buffer);
    return result;
}

/* --- values ----------------------------------------------------------------------------------- */

/* values(buffer, position, base_offset) -> (position, values, offsets)

   The values of the plain records from *position* on, as a list of bytes, and the offsets of these
   records: bytes with a signed number of 64 bits for each, in the machine's byte order, as
   array('q').frombytes takes them.  *position* says where it stopped: at once if an offset doesn't
   fit 63 bits. */
static PyObject *values(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer buffer;
    Py_ssize_t position;
    int64_t base_offset;
    if (!is_number_of_arguments(count, 3))
        return NULL;
    if (take_buffer(arguments[0], arguments[1], &buffer, &position) < 0)
        return NULL;
    PyObject *list = NULL, *offsets = NULL, *result = NULL;
    Record record;
    int fits = take_base_offset(arguments[2], buffer.len, &base_offset);
    if (fits < 0)
        goto end;
    const uint8_t *data = buffer.buf;
    /* How many there are, so that both results are made in their sizes. */
    Py_ssize_t stop = position, records = 0;
    while (fits && is_plain(data + stop, buffer.len - stop, &record)) {
        stop += record.bytes;
        records++;
    }
    list = PyList_New(records);
    /* A record has 57 bytes or more, so 8 for each are fewer than the buffer has. */
    offsets = PyBytes_FromStringAndSize(NULL, records * (Py_ssize_t)sizeof(int64_t));
    if (list == NULL || offsets == NULL)
        goto end;
    char *next = PyBytes_AsString(offsets);
    for (Py_ssize_t index = 0; index < records; index++, next += sizeof(int64_t)) {
        const uint8_t *at = data + position;
        uint32_t key_length = load32(at + AT_KEY_LENGTH);
        Py_ssize_t before = STRUCTURED_BYTES_MIN + (key_length == NO_KEY ? 0 : key_length);
        Py_ssize_t bytes = (Py_ssize_t)load32(at) + LENGTH_BYTES;
        int64_t offset = base_offset + position;
        memcpy(next, &offset, sizeof offset);
        PyObject *value = bytes_of(at + before, bytes - before);
        if (value == NULL || PyList_SetItem(list, index, value) < 0)
            goto end;
        position += bytes;
    }
    result = Py_BuildValue("nOO", stop, list, offsets);
end:
    Py_XDECREF(list);
    Py_XDECREF(offsets);
    PyBuffer_Release(&buffer);
    return result;
}

/* --- encode ----------------------------------------------------------------------------------- */

/* A message as `octopi.record_encoding.BatchBuilder` keeps it.  The objects belong to its tuple. */
typedef struct {
    PyObject *value;
    PyObject *key; /* NULL: none */
    PyObject *headers; /* the encoded block */
    uint64_t timestamp_ms;
    size_t bytes; /* of its record */
} Outgoing;

/* Look at the message at *index* of the list.  Return 1 if its record can be written here; 0,
   without an exception, if Python has to: its parts are of other types, or it is too large. */
static int take_message(PyObject *messages, Py_ssize_t index, Outgoing *message)
{
    PyObject *tuple = PyList_GetItem(messages, index);
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4)
        return 0;
    message->value = PyTuple_GetItem(tuple, 0);
    message->key = PyTuple_GetItem(tuple, 1);
    message->headers = PyTuple_GetItem(tuple, 2);
    PyObject *timestamp = PyTuple_GetItem(tuple, 3);
    if (message->key == Py_None)
        message->key = NULL;
    if (!PyBytes_CheckExact(message->value) || !PyBytes_CheckExact(message->headers)
        || (message->key != NULL && !PyBytes_CheckExact(message->key)) || !PyLong_Check(timestamp))
        return 0;
    message->timestamp_ms = PyLong_AsUnsignedLongLong(timestamp);
    if (message->timestamp_ms == UINT64_MAX && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    size_t parts[3] = {
        (size_t)PyBytes_Size(message->value),
        (size_t)PyBytes_Size(message->headers),
        message->key == NULL ? 0 : (size_t)PyBytes_Size(message->key),
    };
    message->bytes = STRUCTURED_BYTES_MIN;
    for (int part = 0; part < 3; part++) {
        if (parts[part] > RECORD_BYTES_MAX - message->bytes)
            return 0;
        message->bytes += parts[part];
    }
    return 1;
}

/* Write the bytes of *part* at *at*; return the end of them. */
static uint8_t *put(uint8_t *at, PyObject *part)
{
    size_t size = (size_t)PyBytes_Size(part);
    memcpy(at, PyBytes_AsString(part), size);
    return at + size;
}

/* encode(messages, producer, first_sequence) -> bytes or None

   The records of the list *messages*, whose items are tuples (value, key, headers, timestamp_ms),
   with consecutive sequences; *producer* is producer id and epoch (20 bytes).  None if Python has
   to encode them; see `take_message`. */
static PyObject *encode(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (!is_number_of_arguments(count, 3))
        return NULL;
    PyObject *messages = arguments[0];
    uint64_t sequence = PyLong_AsUnsignedLongLong(arguments[2]);
    if (sequence == UINT64_MAX && PyErr_Occurred())
        return NULL;
    if (!PyList_Check(messages))
        return PyErr_Format(PyExc_TypeError, "messages are in a list");
    if (!PyBytes_Check(arguments[1]) || PyBytes_Size(arguments[1]) != PRODUCER_BYTES)
        return PyErr_Format(PyExc_ValueError, "a producer has %d bytes", PRODUCER_BYTES);
    const char *producer = PyBytes_AsString(arguments[1]);
    Py_ssize_t messages_count = PyList_Size(messages);
    Outgoing message;
    size_t total = 0;
    for (Py_ssize_t index = 0; index < messages_count; index++) {
        if (!take_message(messages, index, &message))
            return Py_NewRef(Py_None);
        if (message.bytes > (size_t)PY_SSIZE_T_MAX - total)
            return PyErr_NoMemory();
        total += message.bytes;
    }
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (records == NULL)
        return NULL;
    /* No code of Python runs in this function, so the list is what it was. */
    uint8_t *at = (uint8_t *)PyBytes_AsString(records);
    for (Py_ssize_t index = 0; index < messages_count; index++, sequence++) {
        take_message(messages, index, &message);
        store32(at, (uint32_t)message.bytes - LENGTH_BYTES);
        at[AT_VERSION] = STRUCTURED;
        memcpy(at + CHECKSUM_END, producer, PRODUCER_BYTES);
        store32(at + AT_RESERVED, 0);
        store64(at + AT_SEQUENCE, sequence);
        store64(at + AT_TIMESTAMP, message.timestamp_ms);
        store32(at + AT_KEY_LENGTH,
                message.key == NULL ? NO_KEY : (uint32_t)PyBytes_Size(message.key));
        store32(at + AT_HEADERS_LENGTH, (uint32_t)PyBytes_Size(message.headers));
        uint8_t *end = put(at + STRUCTURED_BYTES_MIN, message.headers);
        if (message.key != NULL)
            end = put(end, message.key);
        end = put(end, message.value);
        store32(at + AT_CHECKSUM, checksum(at + CHECKSUM_END, message.bytes - CHECKSUM_END));
        at = end;
    }
    return records;
}

/* --- for tests -------------------------------------------------------------------------------- */

/* crc32(way, buffer) -> int or None

   What zlib.crc32 says of *buffer*, computed by "tables" or by "clmul"; None if this processor
   can't do it in that way. */
static PyObject *crc32_by(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer buffer;
    Checksum way = NULL;
    if (!is_number_of_arguments(count, 2))
        return NULL;
    if (!PyUnicode_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "the name of a way is needed");
    if (PyUnicode_CompareWithASCIIString(arguments[0], "tables") == 0)
        way = checksum_by_tables;
#if HAS_CLMUL_CODE
    if (PyUnicode_CompareWithASCIIString(arguments[0], "clmul") == 0 && has_clmul())
        way = checksum_by_clmul;
#endif
    if (way == NULL)
        return Py_NewRef(Py_None);
    if (PyObject_GetBuffer(arguments[1], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t crc = ~way(0xFFFFFFFFu, buffer.buf, (size_t)buffer.len);
    PyBuffer_Release(&buffer);
    return PyLong_FromUnsignedLong(crc);
}

/* --- the module ------------------------------------------------------------------------------- */

static int fill_module(PyObject *module)
{
    make_tables();
#if HAS_CLMUL_CODE
    if (has_clmul())
        best_checksum = checksum_by_clmul;
#endif
    if (Py_Version >= 0x030E0000)
        messages_by_new = 1;
    if (PyModule_AddIntConstant(module, "RECORD_BYTES_MAX", RECORD_BYTES_MAX) < 0)
        return -1;
    /* Of which source it was made (octopi/kernels.py). */
    return PyModule_AddStringConstant(module, "SOURCE", OCTOPI_SOURCE);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef METHODS[] = {
    {"scan", FAST(scan), METH_FASTCALL, NULL},
    {"decode", FAST(decode), METH_FASTCALL, NULL},
    {"values", FAST(values), METH_FASTCALL, NULL},
    {"encode", FAST(encode), METH_FASTCALL, NULL},
    {"crc32", FAST(crc32_by), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, (void *)fill_module},
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "octopi._kernels",
    .m_doc = "Scanning, decoding and encoding of plain records; see octopi/kernels.py.",
    .m_methods = METHODS,
    .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&MODULE);
}
