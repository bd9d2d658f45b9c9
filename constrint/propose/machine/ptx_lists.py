"""The lists that PTX is read by: what a kernel needs, and why some things are on none."""

import re

from constrint.propose.machine import words

#: Instructions.
INSTRUCTIONS = words(
    "abs activemask add addc and atom bar barrier bfe bfi bfind bmsk bra brev brx call clz cnot copysign cos cp "
    "createpolicy cvt cvta div dp2a dp4a elect ex2 exit fence fma fns isspacep ld ldmatrix ldu lg2 lop3 mad mad24 "
    "madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 neg not or popc prmt rcp red redux rem ret "
    "rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stmatrix sub subc szext tanh tcgen05 testp "
    "vote wgmma wmma xor"
)
#: Types, shapes, rounding, comparison, state spaces, scopes, orders, and hints of caches that end with the kernel.
MODIFIERS = words(
    "b1 b4x16 b4x16_p64 b6x16_p32 b8 b8x16 b16 b32 b64 b128 u4 u8 u16 u16x2 u32 u64 s4 s8 s16 s16x2 s32 s64 f16 "
    "f16x2 bf16 bf16x2 tf32 f32 f32x2 f64 pred e4m3 e5m2 e4m3x2 e5m2x2 e2m1 e2m1x2 e2m1x4 e3m2 e2m3 ue8m0 ue8m0x2 v2 "
    "v4 v8 rn rz rm rp rna rs rni rzi rmi rpi ftz sat satfinite relu approx full noftz scaled xorsign abs nan num "
    "NaN eq ne lt le gt ge equ neu ltu leu gtu geu lo ls hi hs and or xor not popc add sub inc dec min max exch cas "
    "wide cc wrap clamp shiftamt l r left right b4e f4e rc8 ecl ecr rc16 finite infinite number notanumber normal "
    "subnormal sync aligned all any uni ballot none idx up down bfly red arrive wait warp cluster cta gpu sys global "
    "shared gl shared::cta shared::cluster local param const generic to tensor nc volatile relaxed acquire release "
    "acq_rel sc weak ca cg cs cv lu wb wt noinc L1::no_allocate L1::evict_first L1::evict_normal L1::evict_unchanged "
    "L1::evict_last L2::64B L2::128B L2::256B L2::evict_first L2::evict_normal async bulk commit_group wait_group "
    "wait_all read mbarrier mbarrier::complete_tx::bytes mbarrier::arrive::one init inval expect_tx complete_tx "
    "arrive_drop reduce pack pending_count test_wait try_wait parity proxy alias mbarrier_init async::generic 1d 2d "
    "3d 4d 5d tile im2col tile::gather4 tile::scatter4 tensormap multicast::cluster mma_async fence m8n8 m8n8k4 "
    "m8n8k16 m8n8k32 m8n8k128 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m16n8k64 m16n8k128 m16n8k256 m16n16k8 m16n16k16 "
    "m32n8k16 m8n32k16 m16n16 m16n8 row col trans x1 x2 x4 x8 x16 x32 x64 x128 a d load store mma sp "
    "sp::ordered_metadata kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 "
    "block_scale scale_vec::1X scale_vec::2X scale_vec::4X cta_group::1 cta_group::2 alloc dealloc "
    "relinquish_alloc_permit ld st cp shift commit before_thread_sync after_thread_sync 16x64b 16x128b 16x256b "
    "32x32b 16x32bx2 128x256b 4x256b 128x128b 64x128b 32x128b warpx4 warpx2::02_13 pack::16b unpack::16b "
    "collector::a::fill collector::a::use collector::a::lastuse collector::a::discard fractional L2::cache_hint "
    "L2::evict_unchanged bulk_group wait::ld wait::st"
)
_KEEPS = "keeps lines in the L2 (in Triton: leave eviction_policy='evict_last' out)"
WHY = {
    "trap": "ends all",
    "brkpt": "ends all",
    "nanosleep": "waits for its own sake",
    "L2::evict_last": _KEEPS,
    "discard": "changes what the L2 keeps",
    "applypriority": "changes what the L2 keeps",
    "prefetch": "changes what the L2 keeps",
}
WGMMA_SHAPE = re.compile(r"m64n\d{1,3}k\d{1,3}")
#: Names that compilers give to registers. ptxas takes a declared `%clock` for the clock, so other names are none.
REGISTER = re.compile(r"%(?:(?:p|rs|r|rd|rq|f|fd|h|hh|[a-d])\d*|SPL?|temp|[a-d](?:lo|hi))")
#: What a thread may ask about its place; neither a clock nor a counter nor a number of the launch.
SPECIAL = words(
    "%tid %ntid %ctaid %nctaid %laneid %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt %lanemask_ge %clusterid "
    "%nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster "
    "%dynamic_smem_size %total_smem_size"
)
#: Tables of the mathematical functions that every kernel may read.
TABLES = words("__cudart_i2opi_f __cudart_i2opi_d __cudart_sin_cos_coeffs")
BOUNDS = words(".maxntid .reqntid .minnctapersm .maxnreg .noreturn .explicitcluster .reqnctapercluster")
DECLARED = words(".reg .local .shared .param")
FRAGMENT_DECLARED = frozenset({".reg"})
