// One step of a GPT on a CPU: the logits after some ids of some texts, in float32. Matrices of 8 bits are multiplied by
// rows that are rounded to integers of 12 to 16 bits, each with a scale.
//
// A row is one id of one text. The letters are those of jumok.nn.attention: C width, H heads, G key/value heads, D head
// width, V vocabulary; N rows, M width of the MLP, S positions.
//
// Each number is accumulated in an order that depends on its own row alone. So a text has the same logits, bit for bit,
// whatever rows are computed beside it, on however many threads, and however its ids were split into steps.
//
// The vectors are extensions of GCC and Clang, so that the compiler chooses the instructions of the machine.

#include <atomic>
#include <cmath>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#ifndef _WIN32
#include <unistd.h>
#endif

namespace {

long largest(long a, long b) { return a > b ? a : b; }

// --- vectors ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8, CHAINS = 16;  // float32 in a vector; rows of a tile; vectors of its sums
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 3, CHAINS = 12;
#elif defined(__ARM_NEON)
constexpr int LANES = 4, ROWS = 2, CHAINS = 16;
#else
constexpr int LANES = 4, ROWS = 1, CHAINS = 8;
#endif
constexpr int PANEL = 32;                // columns of a matrix that lie together
constexpr int PARTS = PANEL / LANES;     // vectors across a panel
constexpr int BLOCK = 16;                // positions of a cache that lie together
constexpr int ACROSS = BLOCK / LANES;    // vectors across a block

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));
typedef int16_t Pairs __attribute__((vector_size(4 * LANES)));  // two integers in each lane
typedef int16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int8_t BytePairs __attribute__((vector_size(2 * LANES)));

template <class T>
inline T load(const void* from) {  // at any address
    T found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

inline void store(float* to, Vector x) { std::memcpy(to, &x, sizeof x); }
inline Vector all(float x) { return x - Vector{}; }  // not x + 0, which would lose the sign of a zero

inline float sum(Vector x) {
    float total = 0;
    for (int lane = 0; lane < LANES; lane++) total += x[lane];
    return total;
}

// e^x for |relative error| < 2e-7, limited to the range of float32. A NaN stays one.
inline Vector exponential(Vector x) {
    x = x < -87.0f ? all(-87.0f) : x;
    x = x > 88.0f ? all(88.0f) : x;
    const Vector shifted = x * 1.44269504f + 12582912.0f;  // 1.5 · 2^23: the nearest integer is in the last bits
    const Vector n = shifted - 12582912.0f;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // x - n ln 2, |r| <= ln(2) / 2
    Vector p = all(1.9875691500e-4f);  // the polynomial is that of Cephes' expf
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Integers power = (Integers(shifted) << 23) + 0x3f800000;  // the bits of 2^n
    return p * Vector(power);
}

// The normal distribution function, for |error| < 4e-7: formula 7.1.26 of Abramowitz and Stegun, for erf.
inline Vector normal(Vector x) {
    const Vector t = 1.0f / ((x < 0.0f ? -x : x) * 0.2316418882f + 1.0f);  // 0.3275911 / sqrt(2)
    Vector p = all(0.5307027145f);  // halves of the coefficients
    p = p * t - 0.7265760135f;
    p = p * t + 0.7107068705f;
    p = p * t - 0.142248368f;
    p = p * t + 0.127414796f;
    const Vector beyond = p * t * exponential(x * x * -0.5f);  // the part beyond |x|
    return x < 0.0f ? beyond : 1.0f - beyond;
}

// --- matrices --------------------------------------------------------------------------------------------------------

struct Brain { uint16_t bits; };  // bfloat16: the upper half of a float32

inline Vector load_weights(const float* from) { return load<Vector>(from); }

#if defined(__AVX512F__)  // GCC makes dozens of instructions of the two conversions below
inline Vector load_weights(const Brain* from) {
    return Vector(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load<__m256i>(from)), 16));
}
#elif defined(__AVX2__)
inline Vector load_weights(const Brain* from) {
    return Vector(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(from)), 16));
}
#else
inline Vector load_weights(const Brain* from) {
    typedef uint16_t Uppers __attribute__((vector_size(2 * LANES)));
    typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
    return Vector(__builtin_convertvector(load<Uppers>(from), Words) << 16);
}
#endif

// Integers are multiplied two at a time: x[i] w[i] + x[i + 1] w[i + 1] in each lane, twice as fast as float32.
#if defined(__AVX512BW__)
inline Pairs load_weights(const int8_t* from) { return Pairs(_mm512_cvtepi8_epi16(load<__m256i>(from))); }
inline Integers product(Integers x, Pairs w) { return Integers(_mm512_madd_epi16(__m512i(x), __m512i(w))); }
#else
inline Pairs load_weights(const int8_t* from) { return __builtin_convertvector(load<BytePairs>(from), Pairs); }
#if defined(__AVX2__) && !defined(__AVX512F__)
inline Integers product(Integers x, Pairs w) { return Integers(_mm256_madd_epi16(__m256i(x), __m256i(w))); }
#elif defined(__SSE2__) && !defined(__AVX__)
inline Integers product(Integers x, Pairs w) { return Integers(_mm_madd_epi16(__m128i(x), __m128i(w))); }
#else
inline Integers product(Integers x, Pairs w) {
    return (x << 16 >> 16) * (Integers(w) << 16 >> 16) + (x >> 16) * (Integers(w) >> 16);
}
#endif
#endif
inline Pairs load_weights(const int16_t* from) { return load<Pairs>(from); }

inline Vector product(Vector x, Vector w) { return x * w; }

template <class W>
constexpr int IN_LANE = std::is_integral_v<W> ? 2 : 1;  // numbers that are multiplied in one lane

struct Matrix {
    const void* panels;         // [panel][in][PANEL]; of 8 bits [panel][in / 2][PANEL][2], in rounded up
    const float *scale, *bias;  // [panel][PANEL]
    int32_t in, count;          // inputs; panels
    template <class W>
    long lanes() const { return (in + IN_LANE<W> - 1) / IN_LANE<W> * (long)PANEL; }  // of a panel
};

// Rows of inputs and of results, and how far apart two rows are; `add`: to what is in `out`.
struct Rows {
    const float* x;  // or pairs of int16_t, of which x[r] is `scale[r]` times as large
    long x_step;
    float* out;
    long out_step;
    bool add;
    const float* scale = nullptr;
    Rows from(long r, long column = 0) const {
        return {x + r * x_step, x_step, out + r * out_step + column, out_step, add, scale ? scale + r : nullptr};
    }
};

// Memory that is read soon, `step` bytes at a time.
struct Ahead {
    const char* from;
    long step;
};

// out[r][c] = sum over i of x[r][i] W[i][c], times scale, plus bias, for R rows and P panels from `panel` on.
template <class W, int R, int P>
void tile(const Matrix& m, int panel, const Rows& rows, const Ahead& ahead) {
    constexpr bool whole = std::is_integral_v<W>;
    using Numbers = std::conditional_t<whole, Integers, Vector>;
    const long next = m.lanes<W>() * IN_LANE<W>;
    const W* weights = static_cast<const W*>(m.panels) + panel * next;
    Numbers sums[R][P][PARTS] = {};
    for (long i = 0; i < m.lanes<W>() / PANEL; i++) {
        if (ahead.step) __builtin_prefetch(ahead.from + i * ahead.step);
        Numbers row[R];
        for (int r = 0; r < R; r++) {
            const float* x = rows.x + r * rows.x_step + i;
            if constexpr (whole) row[r] = load<int32_t>(x) - Integers{};
            else row[r] = all(*x);
        }
        for (int p = 0; p < P; p++)
            for (int v = 0; v < PARTS; v++) {
                const auto w = load_weights(weights + p * next + (i * PANEL + v * LANES) * IN_LANE<W>);
                for (int r = 0; r < R; r++) sums[r][p][v] += product(row[r], w);
            }
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P; p++)
            for (int v = 0; v < PARTS; v++) {
                const long column = (long)(panel + p) * PANEL + v * LANES;
                float* to = rows.out + r * rows.out_step + column;
                Vector total;
                if constexpr (whole) total = __builtin_convertvector(sums[r][p][v], Vector) * rows.scale[r];
                else total = sums[r][p][v];
                const Vector y = total * load<Vector>(m.scale + column) + load<Vector>(m.bias + column);
                store(to, rows.add ? load<Vector>(to) + y : y);
            }
}

// How many panels a tile of R rows takes, so that enough independent sums are in flight.
constexpr int panels_beside(int rows) {
    const int most = CHAINS / (rows * PARTS);
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

typedef void Tile(const Matrix&, int, const Rows&, const Ahead&);

template <class W, int... R>
Tile* tile_of(int rows, bool wide, std::integer_sequence<int, R...>) {
    static Tile* const wides[] = {tile<W, R + 1, panels_beside(R + 1)>...};
    static Tile* const singles[] = {tile<W, R + 1, 1>...};
    return (wide ? wides : singles)[rows - 1];
}

// Panels first..last-1 of the product of N rows, in tiles of almost equal heights.
template <class W>
void multiply(const Matrix& m, int first, int last, const Rows& rows, long n) {
    const auto heights = std::make_integer_sequence<int, ROWS>();
    const long tiles = (n + ROWS - 1) / ROWS;
    for (int panel = first; panel < last;) {
        // Panels beside each other are for one tile; several tiles have sums enough.
        const int beside = tiles == 1 && panels_beside(int(n)) <= last - panel ? panels_beside(int(n)) : 1;
        // While the first tiles are computed, the next panel comes from the memory. One tile waits for its own panel.
        const long shares = tiles < 4 ? tiles : 4, size = m.lanes<W>() * IN_LANE<W> * sizeof(W), share = size / shares;
        const char* next = static_cast<const char*>(m.panels) + (panel + 1) * size;
        for (long t = 0; t < tiles; t++) {
            const long from = n * t / tiles, height = n * (t + 1) / tiles - from;
            const long step = tiles > 1 && t < shares ? share * PANEL / m.lanes<W>() : 0;
            const Ahead ahead{next + t * share, step};
            tile_of<W>(int(height), beside > 1, heights)(m, panel, rows.from(from), ahead);
        }
        panel += beside;
    }
}

// The same after the numbers of each panel are turned into wider ones, which pays from a few tiles on.
template <class W>
void expand_and_multiply(const Matrix& m, int first, int last, const Rows& rows, long n) {
    struct alignas(64) Line { char bytes[64]; };
    static thread_local std::vector<Line> lines;
    const long size = m.lanes<W>();
    lines.resize(largest(lines.size(), size * sizeof(float) / sizeof(Line)));
    for (int panel = first; panel < last; panel++) {
        const W* weights = static_cast<const W*>(m.panels) + panel * size * IN_LANE<W>;
        char* expanded = lines.data()->bytes;
        for (long i = 0; i < size; i += LANES) {
            const auto wide = load_weights(weights + i * IN_LANE<W>);
            std::memcpy(expanded + i * sizeof(float), &wide, sizeof wide);
        }
        const Matrix one{expanded, m.scale + (long)panel * PANEL, m.bias + (long)panel * PANEL, m.in, 1};
        using Wide = std::conditional_t<std::is_integral_v<W>, int16_t, float>;
        multiply<Wide>(one, 0, 1, rows.from(0, (long)panel * PANEL), n);
    }
}

// --- threads ---------------------------------------------------------------------------------------------------------

inline void relax(int& waited) {
    if (++waited < 2000) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    } else {
        std::this_thread::yield();
    }
}

// As `relax`, for a thread that waits within a step. Where other programs need the processors, too, the thread that it
// waits for is not running, and each yield costs this one its turn: a step took seconds.
inline void wait_in_step(int& waited) {
    if (waited < 2100) {
        relax(waited);
    } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

constexpr int MOST_THREADS = 64;

// What the threads of one step share. A step is a sequence of phases, and a phase is a number of tasks.
//
// Each thread begins with its own share of the tasks, whose weights are in its cache, and then takes what others have
// not begun. So a thread that the system holds up delays the others by one task at most.
struct Team {
    struct alignas(64) Share { std::atomic<uint64_t> next{0}; };  // phase << 32 | tasks taken
    int threads = 1;
    Share shares[MOST_THREADS];
    alignas(64) std::atomic<uint64_t> finished{0};  // tasks, of all phases
};

// One thread in a team. All threads run the same phases in the same order.
class Member {
  public:
    Member(Team* team, int index) : team(team), index(index) {}

    int number() const { return index; }

    // Run `work(task)` for all tasks, on all threads together; returns when all are done.
    template <class Work>
    void phase(long tasks, const Work& work) {
        if (team->threads == 1) {
            for (long task = 0; task < tasks; task++) work(task);
            return;
        }
        current++;
        expected += tasks;
        uint64_t done = 0;
        for (int k = 0; k < team->threads; k++) {
            const int owner = (index + k) % team->threads;
            const long first = tasks * owner / team->threads, last = tasks * (owner + 1) / team->threads;
            for (long task; (task = take(owner, last - first)) >= 0; done++) work(first + task);
        }
        if (done) team->finished.fetch_add(done, std::memory_order_acq_rel);
        for (int waited = 0; team->finished.load(std::memory_order_acquire) < expected;) wait_in_step(waited);
    }

  private:
    // The next task of a share, or -1. A thread that is late finds a later phase there, and takes nothing.
    long take(int owner, long tasks) {
        std::atomic<uint64_t>& next = team->shares[owner].next;
        uint64_t seen = next.load(std::memory_order_acquire);
        for (;;) {
            const uint64_t of = seen >> 32, taken = of < current ? 0 : seen & 0xffffffff;
            if (of > current || (long)taken >= tasks) return -1;
            const uint64_t after = current << 32 | (taken + 1);
            if (next.compare_exchange_weak(seen, after, std::memory_order_acq_rel)) return (long)taken;
        }
    }

    Team* team;
    int index;
    uint64_t current = 0, expected = 0;
};

struct Step;
void run(const Step& step, Member member);

// Threads that sleep between steps. One step runs at a time; another caller, or a forked process, computes alone.
class Pool {
  public:
    static void compute(const Step& step, int threads) {
        static Pool* const pool = new Pool;  // never destroyed: its threads may still look at it
        const int helpers = (threads < MOST_THREADS ? threads : MOST_THREADS) - 1;
        if (helpers > 0 && pool->owner == process() && pool->busy.try_lock()) {
            pool->lead(step, helpers);
            pool->busy.unlock();
        } else {
            Team alone;
            run(step, Member(&alone, 0));
        }
    }

  private:
    static long process() {
#ifdef _WIN32
        return 0;
#else
        return getpid();
#endif
    }

    void lead(const Step& given, int helpers) {
        try {
            for (; started < helpers; started++) std::thread(&Pool::help, this, started + 1).detach();
        } catch (...) {  // the system gives no more threads
            helpers = started < helpers ? started : helpers;
        }
        team.threads = helpers + 1;
        for (auto& share : team.shares) share.next = 0;
        team.finished = 0;
        step = &given;
        inside = 0;  // open
        {
            std::lock_guard<std::mutex> guard(mutex);
            ticket++;
        }
        wake.notify_all();
        run(given, Member(&team, 0));
        // Closed when no helper is inside; one that wakes up later finds nothing to do.
        for (int waited = 0, none = 0; !inside.compare_exchange_weak(none, -1); none = 0) wait_in_step(waited);
    }

    void help(int index) {
        for (uint64_t seen = 0;;) {
            for (int waited = 0; ticket == seen && waited < 4000;) relax(waited);
            if (ticket == seen) {
                std::unique_lock<std::mutex> guard(mutex);
                wake.wait(guard, [&] { return ticket != seen; });
            }
            seen = ticket;
            int number = inside;
            while (number >= 0 && !inside.compare_exchange_weak(number, number + 1)) {}
            if (number < 0) continue;
            if (index < team.threads) run(*step, Member(&team, index));
            inside--;
        }
    }

    const long owner = process();
    std::mutex busy, mutex;
    std::condition_variable wake;
    std::atomic<uint64_t> ticket{0};
    std::atomic<int> inside{-1};  // helpers in the open step; -1: none is open
    const Step* step = nullptr;
    Team team;
    int started = 0;
};

// --- the model -------------------------------------------------------------------------------------------------------

struct Norm {
    const float *weight, *bias;  // (width,); no bias: RMSNorm; no weight: nothing
    float eps;
};

struct Layer {
    Norm attention_norm, q_norm, k_norm, mlp_norm;
    Matrix qkv, o, up, down;  // up of a gated MLP: a panel of the gate and a panel of the values in turn
    int32_t window;           // a position attends to so many, itself included; 0: to all before it
};

enum Kind : int32_t { FLOAT32, BFLOAT16, INT8 };
enum Activation : int32_t { SILU, GELU, GELU_TANH, RELU };

struct Model {
    int32_t layers, width, heads, kv_heads, head_dim, mlp_width, kind, activation;
    int32_t gated, parallel, rotary_dim;  // parallel: the MLP reads what attention reads; rotary_dim <= D
    const float *embedding, *positions;   // (V, C); (context, C), or null
    const float *cos, *sin;               // (context, rotary_dim), or null
    const Layer* layer;
    Norm norm;
    Matrix head;
};

// Consecutive ids of one text, the first at position `start`.
struct Chunk {
    void* cache;  // [layer][G][block], each block [D][BLOCK] of keys and [BLOCK][padded D] of values
    int32_t blocks, start, count;
};

constexpr long padded(long n, long unit) { return (n + unit - 1) / unit * unit; }

enum Outputs : int32_t { LAST, EVERY, HIDDEN };  // logits after the last or every id of a chunk; hidden states of every id

struct Row { int chunk, position; };
struct RowTile { int chunk, row, count; };  // some rows of one chunk, from `row` on

struct Step {
    const Model& m;
    const Chunk* chunks = nullptr;
    const int32_t* ids = nullptr;  // (N,)
    long n = 0;
    Outputs outputs = LAST;
    float* found = nullptr;  // (outputs, padded V or C)
    // Intermediate results, (N, padded width) each; the last: the scores of one query of each thread.
    float *x = nullptr, *y = nullptr, *qkv = nullptr, *up = nullptr, *mixed = nullptr, *scores = nullptr;
    float *rounded = nullptr, *scale = nullptr;  // inputs of a product with 8 bits, in pairs of int16_t; (N,)
    long c = 0, qkv_width = 0, up_width = 0, mixed_width = 0, rounded_width = 0, score_width = 0;
    std::vector<Row> rows = {};  // (N,)
    std::vector<RowTile> tiles = {};
    std::vector<int> wanted = {};  // (outputs,): rows whose logits or hidden states are wanted
};

constexpr int TILE = 24;  // rows of one text whose attention is one task; a multiple of ROWS

// Round n numbers to integers, and return how many times as large they were: NaN if one is not finite.
float round_row(const float* x, long n, int16_t* to) {
    // As large as a sum of n products with 8 bits allows: 12 bits for 4,000 inputs. Sums of integers have no rounding.
    const float most = largest(1, 32767 < 0x7fffffff / (127 * n) ? 32767 : 0x7fffffff / (127 * n));
    const auto part = [&](long i) {
        Vector found = {};
        std::memcpy(&found, x + i, sizeof(float) * (n - i < LANES ? n - i : LANES));
        return found;
    };
    Vector sizes = {}, zeros = {};
    for (long i = 0; i < n; i += LANES) {
        const Vector one = part(i), size = one < 0.0f ? -one : one;
        sizes = size > sizes ? size : sizes;
        zeros += one * 0.0f;
    }
    float size = 1e-30f;
    for (int lane = 0; lane < LANES; lane++) size = sizes[lane] > size ? sizes[lane] : size;
    for (long i = 0; i < n; i += LANES) {
        const Integers whole = Integers(part(i) * (most / size) + 12582912.0f) - 0x4b400000;
        const auto half = __builtin_convertvector(whole, Halves);
        std::memcpy(to + i, &half, sizeof half);
    }
    return size / most + sum(zeros);
}

void multiply(const Step& step, Member& member, const Matrix& m, Rows rows, long n) {
    if (step.m.kind == INT8) {
        member.phase(n, [&](long r) {
            float* to = step.rounded + r * step.rounded_width;
            step.scale[r] = round_row(rows.x + r * rows.x_step, m.in, reinterpret_cast<int16_t*>(to));
        });
        rows.x = step.rounded, rows.x_step = step.rounded_width, rows.scale = step.scale;
    }
    // Few rows: a task is as many panels as one tile. Many: a panel, which stays in the cache for all rows.
    const int unit = n <= ROWS ? panels_beside(int(n)) : 1;
    member.phase((m.count + unit - 1) / unit, [&](long task) {
        const int first = int(task) * unit, last = first + unit < m.count ? first + unit : m.count;
        const auto compute = step.m.kind == FLOAT32 ? multiply<float>
            : step.m.kind == BFLOAT16 ? (n > 2 * ROWS ? expand_and_multiply<Brain> : multiply<Brain>)
                                      : (n > 2 * ROWS ? expand_and_multiply<int8_t> : multiply<int8_t>);
        compute(m, first, last, rows, n);
    });
}

// sum of (x - shift)^2
inline float squares(const float* x, long n, float shift) {
    Vector total = {};
    long i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Vector d = load<Vector>(x + i) - shift;
        total += d * d;
    }
    float rest = 0;
    for (; i < n; i++) rest += (x[i] - shift) * (x[i] - shift);
    return sum(total) + rest;
}

inline float sum(const float* x, long n) {
    Vector total = {};
    long i = 0;
    for (; i + LANES <= n; i += LANES) total += load<Vector>(x + i);
    float rest = 0;
    for (; i < n; i++) rest += x[i];
    return sum(total) + rest;
}

void normalize(const Norm& norm, const float* x, float* y, long n) {
    const float mean = norm.bias ? sum(x, n) / n : 0;
    const float scale = 1 / std::sqrt(squares(x, n, mean) / n + norm.eps);
    for (long i = 0; i < n; i++) y[i] = norm.weight[i] * ((x[i] - mean) * scale) + (norm.bias ? norm.bias[i] : 0);
}

// Norm and rotation of one head of one row, in place: x is (D,).
void place(const Model& m, const Norm& norm, long position, float* x) {
    const long d = m.rotary_dim, half = d / 2;
    if (norm.weight) normalize(norm, x, x, m.head_dim);
    if (!m.cos) return;
    const float *cos = m.cos + position * d, *sin = m.sin + position * d;
    for (long i = 0; i < half; i++) {
        const float left = x[i], right = x[i + half];
        x[i] = left * cos[i] - right * sin[i];
        x[i + half] = right * cos[i + half] + left * sin[i + half];
    }
}

template <class T>  // float, or Brain where the matrices are rounded: many texts take more memory than the model
struct Cache {       // of one layer and key/value head of one text
    T* first;
    long d, wide, size;
    Cache(const Model& m, const Chunk& chunk, long layer, long g)
        : d(m.head_dim), wide(padded(d, BLOCK)), size(BLOCK * (d + wide)) {
        first = static_cast<T*>(chunk.cache) + (layer * m.kv_heads + g) * chunk.blocks * size;
    }
    Cache from(long block) const {
        Cache rest = *this;
        rest.first += block * size;
        return rest;
    }
    T* keys(long block) const { return first + block * size; }                // [D][BLOCK]
    T* values(long block) const { return first + block * size + d * BLOCK; }  // [BLOCK][padded D]
};

inline void round_to(float* to, float x) { *to = x; }

inline void round_to(Brain* to, float x) {  // to the nearest, ties to even; a NaN stays one
    const uint32_t bits = load<uint32_t>(&x);
    to->bits = x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Write key and value of a position.
template <class T>
void remember(const Cache<T>& cache, long position, const float* k, const float* v) {
    const long block = position / BLOCK, at = position % BLOCK;
    T *keys = cache.keys(block) + at, *values = cache.values(block) + at * cache.wide;
    for (long i = 0; i < cache.d; i++) round_to(keys + i * BLOCK, k[i]);
    for (long i = 0; i < cache.d; i++) round_to(values + i, v[i]);
}

// One head of one row, and the positions from..stop-1 of the cache that it attends to, where 0 <= from < BLOCK.
struct Query {
    const float* q;
    float* out;
    long from, stop;
};

// scores[r][s] = q of query r · key s, for R queries and B blocks from `block` on.
template <int R, int B, class T>
void score(const Cache<T>& cache, long block, const Query* queries, float* scores, long width) {
    Vector sums[R][B][ACROSS] = {};
    const T* keys = cache.keys(block);
    for (long i = 0; i < cache.d; i++)
        for (int b = 0; b < B; b++) {
            const T* from = keys + b * cache.size + i * BLOCK;
            if (R == 1) {  // one query waits for the memory
                __builtin_prefetch(from + cache.d * BLOCK);  // the values
                __builtin_prefetch(from + B * cache.size);
            }
            for (int a = 0; a < ACROSS; a++) {
                const Vector k = load_weights(from + a * LANES);
                for (int r = 0; r < R; r++) sums[r][b][a] += queries[r].q[i] * k;
            }
        }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++)
            for (int a = 0; a < ACROSS; a++)
                store(scores + r * width + (block + b) * BLOCK + a * LANES, sums[r][b][a]);
}

// Turn the scores of positions from..s-1 into weights that still have to be divided by the sum, which is returned.
float weigh(float* scores, long from, long s, float scale) {
    const long end = padded(s, BLOCK);
    for (long i = 0; i < from; i++) scores[i] = -INFINITY;
    for (long i = s; i < end; i++) scores[i] = -INFINITY;  // what lies there belongs to no position of this row
    Vector most = all(-INFINITY);
    for (long i = 0; i < end; i += LANES) {
        const Vector one = load<Vector>(scores + i);
        most = one > most ? one : most;  // a NaN is passed over here, and comes back from its own exponential
    }
    float largest = most[0];
    for (int lane = 1; lane < LANES; lane++) largest = most[lane] > largest ? most[lane] : largest;
    Vector total = {};
    for (long i = 0; i < end; i += LANES) {
        const Vector one = load<Vector>(scores + i);
        const Vector weight = exponential((one - largest) * scale);
        store(scores + i, weight);
        if (i + LANES <= s) {
            total += weight;
        } else {
            for (int lane = 0; lane < LANES && i + lane < s; lane++) total[lane] += weight[lane];
        }
    }
    return sum(total);
}

// Four sums over positions, so that additions need not wait: sum k is that of the positions k, k + 4, k + 8, ...
template <int B>
struct Mixed { Vector sums[4][B]; };

// Add weights[s] · value s over the positions of the first blocks, for R queries and B vectors from `column` on.
template <int R, int B, class T>
void mix_blocks(const Cache<T>& cache, const float* weights, long width, long blocks, long column, Mixed<B>* mixed) {
    for (int k = 0; k < 4; k++) {
        Vector sums[R][B] = {};
        for (long block = 0; block < blocks; block++)
            for (long at = k; at < BLOCK; at += 4) {
                const T* values = cache.values(block) + at * cache.wide + column;
                Vector value[B];
                for (int b = 0; b < B; b++) value[b] = load_weights(values + b * LANES);
                for (int r = 0; r < R; r++)
                    for (int b = 0; b < B; b++) sums[r][b] += weights[r * width + block * BLOCK + at] * value[b];
            }
        for (int r = 0; r < R; r++)
            for (int b = 0; b < B; b++) mixed[r].sums[k][b] = sums[r][b];
    }
}

// out[i] = sum over positions of weights[s] · value s [i] / total; `mixed` has those of the blocks before `block`.
template <int B, class T>
void mix(const Cache<T>& cache, Mixed<B> mixed, long block, const float* weights, long s, float total, long column,
         float* out) {
    auto& sums = mixed.sums;
    for (; block * BLOCK < s; block++) {
        const T* values = cache.values(block) + column;
        const long count = s - block * BLOCK < BLOCK ? s - block * BLOCK : BLOCK;
        const auto add = [&](int k, long at) {
            for (int b = 0; b < B; b++)
                sums[k][b] += weights[block * BLOCK + at] * load_weights(values + at * cache.wide + b * LANES);
        };
        long at = 0;
        for (; at + 4 <= count; at += 4)
            for (int k = 0; k < 4; k++) add(k, at + k);
        for (int k = 0; k < 3; k++)
            if (at + k < count) add(k, at + k);
    }
    float found[B * LANES];
    for (int b = 0; b < B; b++) {
        const Vector all_four = (sums[0][b] + sums[1][b]) + (sums[2][b] + sums[3][b]);
        store(found + b * LANES, all_four / total);
    }
    const long left = cache.d - column;
    std::memcpy(out + column, found, sizeof(float) * (left < B * LANES ? left : B * LANES));
}

// Attention of R queries, the stops of which ascend. Several share each load of a key and a value.
template <int R, class T>
void attend(const Cache<T>& cache, const Query* queries, float* scores, long width) {
    const long blocks = padded(queries[R - 1].stop, BLOCK) / BLOCK;
    long block = 0;
    if (R == 1)
        for (; block + 4 <= blocks; block += 4) score<1, 4>(cache, block, queries, scores, width);
    for (; block + 2 <= blocks; block += 2) score<R, 2>(cache, block, queries, scores, width);
    for (; block < blocks; block++) score<R, 1>(cache, block, queries, scores, width);
    float total[R];
    for (int r = 0; r < R; r++)
        total[r] = weigh(scores + r * width, queries[r].from, queries[r].stop, 1 / std::sqrt((float)cache.d));
    constexpr int B = CHAINS / ROWS < 4 ? CHAINS / ROWS : 4;  // vectors of a tile
    long column = 0;
    if (R > 1) {
        const long shared = queries[0].stop / BLOCK;
        for (; column + B * LANES <= cache.wide; column += B * LANES) {
            Mixed<B> mixed[R];
            mix_blocks<R, B>(cache, scores, width, shared, column, mixed);
            for (int r = 0; r < R; r++)
                mix<B>(cache, mixed[r], shared, scores + r * width, queries[r].stop, total[r], column, queries[r].out);
        }
    }
    for (; column < cache.d; column += 2 * LANES)
        for (int r = 0; r < R; r++) {
            const auto [q, out, from, stop] = queries[r];
            const float* weights = scores + r * width;
            if (column + LANES < cache.d) mix<2>(cache, {}, 0, weights, stop, total[r], column, out);
            else mix<1>(cache, {}, 0, weights, stop, total[r], column, out);
        }
}

inline Vector activation(Activation kind, Vector x) {
    switch (kind) {
        case SILU: return x / (exponential(-x) + 1.0f);
        case GELU: return x * normal(x);
        case GELU_TANH: return x / (exponential(-1.5957691216f * (x + 0.044715f * x * x * x)) + 1.0f);
        default: return x < 0.0f ? Vector{} : x;
    }
}

// A panel of activations: y[i] = f(given[i]), times the value beside it where it is a gate.
void activate(const Model& m, const float* given, float* y) {
    for (int i = 0; i < PANEL; i += LANES) {
        const Vector x = activation((Activation)m.activation, load<Vector>(given + i));
        store(y + i, m.gated ? x * load<Vector>(given + PANEL + i) : x);
    }
}

// --- the phases ------------------------------------------------------------------------------------------------------

template <class T>
void run_layer(const Step& s, Member& member, long number) {
    const Model& m = s.m;
    const Layer& layer = m.layer[number];
    const long d = m.head_dim, h = m.heads, g = m.kv_heads;
    member.phase(s.n, [&](long r) { normalize(layer.attention_norm, s.x + r * s.c, s.y + r * s.c, m.width); });
    multiply(s, member, layer.qkv, {s.y, s.c, s.qkv, s.qkv_width, false}, s.n);
    member.phase(s.n * g, [&](long task) {  // the queries that share a key head, its key and its value
        const long r = task / g, head = task % g, at = s.rows[r].position;
        float* row = s.qkv + r * s.qkv_width;
        for (long q = head * (h / g); q < (head + 1) * (h / g); q++) place(m, layer.q_norm, at, row + q * d);
        float *k = row + (h + head) * d, *v = row + (h + g + head) * d;
        place(m, layer.k_norm, at, k);
        remember(Cache<T>(m, s.chunks[s.rows[r].chunk], number, head), at, k, v);
    });
    member.phase(s.tiles.size() * g, [&](long task) {
        const RowTile& tile = s.tiles[task / g];
        const long head = task % g;
        const Cache<T> cache(m, s.chunks[tile.chunk], number, head);
        float* const scores = s.scores + member.number() * ROWS * s.score_width;
        Query queries[ROWS];
        int waiting = 0;
        long first = 0;  // the block with which the waiting ones begin
        const auto attend_all = [&] {
            const Cache<T> seen = cache.from(first);
            if (waiting == ROWS) attend<ROWS>(seen, queries, scores, s.score_width);
            else for (int i = 0; i < waiting; i++) attend<1>(seen, queries + i, scores, s.score_width);
            waiting = 0;
        };
        for (long r = tile.row; r < tile.row + tile.count; r++) {
            const long stop = s.rows[r].position + 1;
            const long from = layer.window && stop > layer.window ? stop - layer.window : 0;
            if (from / BLOCK != first) attend_all();
            first = from / BLOCK;
            for (long q = head * (h / g); q < (head + 1) * (h / g); q++) {
                queries[waiting++] = {s.qkv + r * s.qkv_width + q * d, s.mixed + r * s.mixed_width + q * d,
                                      from % BLOCK, stop - first * BLOCK};
                if (waiting == ROWS) attend_all();
            }
        }
        attend_all();
    });
    const auto prepare_mlp = [&] {
        member.phase(s.n, [&](long r) { normalize(layer.mlp_norm, s.x + r * s.c, s.y + r * s.c, m.width); });
    };
    if (m.parallel) prepare_mlp();
    multiply(s, member, layer.o, {s.mixed, s.mixed_width, s.x, s.c, true}, s.n);
    if (!m.parallel) prepare_mlp();
    multiply(s, member, layer.up, {s.y, s.c, s.up, s.up_width, false}, s.n);
    const long pair = m.gated ? 2 : 1, panels = layer.up.count / pair;
    member.phase(panels, [&](long panel) {
        for (long r = 0; r < s.n; r++)
            activate(m, s.up + r * s.up_width + panel * pair * PANEL, s.mixed + r * s.mixed_width + panel * PANEL);
    });
    multiply(s, member, layer.down, {s.mixed, s.mixed_width, s.x, s.c, true}, s.n);
}

void run(const Step& s, Member member) {
    const Model& m = s.m;
    member.phase(s.n, [&](long r) {
        const float* row = m.embedding + (long)s.ids[r] * m.width;
        const float* position = m.positions ? m.positions + (long)s.rows[r].position * m.width : nullptr;
        for (long i = 0; i < m.width; i++) s.x[r * s.c + i] = position ? row[i] + position[i] : row[i];
    });
    for (long number = 0; number < m.layers; number++)
        m.kind == FLOAT32 ? run_layer<float>(s, member, number) : run_layer<Brain>(s, member, number);
    const long outputs = long(s.wanted.size());
    float* const normalized = s.outputs == HIDDEN ? s.found : s.y;
    member.phase(outputs, [&](long t) { normalize(m.norm, s.x + s.wanted[t] * s.c, normalized + t * s.c, m.width); });
    if (s.outputs != HIDDEN) multiply(s, member, m.head, {s.y, s.c, s.found, (long)m.head.count * PANEL, false}, outputs);
}

// --- drawing ---------------------------------------------------------------------------------------------------------

// The first id whose cumulative weight passes 1 - uniform of the total, weights being exp(logit / temperature); the
// first of the largest logits where the temperature is 0; -1 if a logit is not finite. `weights` has room for V numbers.
int32_t draw(const float* logits, long v, float temperature, double uniform, float* weights) {
    Vector tops = all(-INFINITY), zeros = {};
    long i = 0;
    for (; i + LANES <= v; i += LANES) {
        const Vector x = load<Vector>(logits + i);
        tops = x > tops ? x : tops;
        zeros += x - x;  // not zero for a NaN or an infinite number
    }
    float most = tops[0], zero = sum(zeros);
    for (int lane = 1; lane < LANES; lane++) most = tops[lane] > most ? tops[lane] : most;
    for (; i < v; i++) most = logits[i] > most ? logits[i] : most, zero += logits[i] - logits[i];
    if (!(zero == 0)) return -1;
    if (temperature == 0) {
        for (i = 0; logits[i] != most;) i++;
        return int32_t(i);
    }
    // The weights of some ids together, so that few sums have to wait for each other.
    constexpr long SOME = 16 * LANES;
    static thread_local std::vector<float> parts;
    parts.clear();
    double total = 0;
    for (long first = 0; first < v; first += SOME) {
        const long end = first + SOME < v ? first + SOME : v;
        Vector part = {};
        for (i = first; i + LANES <= end; i += LANES) {
            const Vector weight = exponential((load<Vector>(logits + i) - most) / temperature);
            store(weights + i, weight);
            part += weight;
        }
        float rest = sum(part);
        for (; i < end; i++) rest += weights[i] = std::exp((logits[i] - most) / temperature);
        parts.push_back(rest);
        total += rest;
    }
    const double wanted = (1 - uniform) * total;
    double passed = 0;
    size_t part = 0;
    for (; part + 1 < parts.size() && passed + parts[part] < wanted; part++) passed += parts[part];
    const long first = long(part) * SOME, last = (first + SOME < v ? first + SOME : v) - 1;
    for (i = first; i < last; i++)
        if ((passed += weights[i]) >= wanted) break;
    return int32_t(i);
}

}  // namespace

#ifdef _WIN32
#define EXPORTED extern "C" __declspec(dllexport)
#else
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif

// How wide the rows of the intermediate results are.
static void lay_out(Step& s, int64_t positions) {
    const Model& m = s.m;
    s.c = padded(m.width, PANEL);
    s.qkv_width = (long)m.layer[0].qkv.count * PANEL;
    s.up_width = (long)m.layer[0].up.count * PANEL;
    s.mixed_width = largest(padded((long)m.heads * m.head_dim, PANEL), padded(m.mlp_width, PANEL));
    s.rounded_width = m.kind == INT8 ? largest(s.c, s.mixed_width) / 2 : 0;
    s.score_width = padded(positions, PANEL);
}

// Numbers of `work` for a step over `n` rows of texts that have at most so many positions.
EXPORTED int64_t jumok_work(const Model* m, int64_t n, int64_t positions) {
    Step s{*m};
    lay_out(s, positions);
    const long of_row = 2 * s.c + s.qkv_width + s.up_width + s.mixed_width + s.rounded_width + 1;
    return n * of_row + MOST_THREADS * ROWS * s.score_width;
}

// Logits, (outputs, padded V), or hidden states after the final norm, (outputs, padded C), of some ids of each chunk.
// `work` has as many numbers as `jumok_work` says. The caller has checked all ids and positions.
EXPORTED void jumok_step(const Model* m, const Chunk* chunks, int32_t texts, const int32_t* ids, int32_t outputs,
                         float* found, float* work, int32_t threads) {
    Step s{*m};
    s.chunks = chunks, s.ids = ids, s.outputs = Outputs(outputs), s.found = found;
    int positions = 0;
    for (int t = 0; t < texts; t++) {
        const int start = chunks[t].start, count = chunks[t].count, first = int(s.rows.size());
        for (int i = 0; i < count; i += TILE) s.tiles.push_back({t, first + i, count - i < TILE ? count - i : TILE});
        for (int i = 0; i < count; i++) s.rows.push_back({t, start + i});
        for (int i = outputs == LAST ? count - 1 : 0; i < count; i++) s.wanted.push_back(first + i);
        positions = start + count > positions ? start + count : positions;
    }
    s.n = long(s.rows.size());
    lay_out(s, positions);
    s.x = work;
    s.y = s.x + s.n * s.c;
    s.qkv = s.y + s.n * s.c;
    s.up = s.qkv + s.n * s.qkv_width;
    s.mixed = s.up + s.n * s.up_width;
    s.rounded = s.mixed + s.n * s.mixed_width;
    s.scores = s.rounded + s.n * s.rounded_width;
    s.scale = s.scores + MOST_THREADS * ROWS * s.score_width;
    Pool::compute(s, threads);
}

// An id for each row of logits, (N, V), `step` numbers apart.
EXPORTED void jumok_draw(
    const float* logits, int64_t step, int64_t n, int64_t v, const float* temperatures, const double* uniform, int32_t* ids
) {
    std::vector<float> weights(v);
    for (long row = 0; row < n; row++) ids[row] = draw(logits + row * step, v, temperatures[row], uniform[row], weights.data());
}
